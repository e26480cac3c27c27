//! Axes that are split and merged, and values along a new axis.

use attn::model;

model! {
    struct Patterns<d = 8, heads = 2, rows = 3>;
    fn forward(x: [batch, rows, d], tokens: ids[batch, rows]) -> [batch, rows, d] {
        let a = rearrange(x);
        let b = rearrange::<rows>(x);
        let c = rearrange::<"b r (h w) -> b h r w">(x);
        let e = rearrange::<[batch, rows, (heads w)] -> [batch, heads, rows, w]>(x);
        let f = rearrange::<[.., (heads, w)] -> [.., heads, w]>(x);
        let g = rearrange::<[batch, (heads, w)] -> [batch, heads, w]>(x);
        let h = rearrange::<[rows, batch, d] -> [batch, rows, d]>(x);
        let i = rearrange::<[batch, rows, (heads, w)] -> [batch, heads, rows]>(x);
        let j = rearrange::<[batch, rows, (heads, w)] -> [batch, heads, heads, w]>(x);
        let k = rearrange::<[batch, rows, (a, b)] -> [batch, a, b, rows]>(x);
        let l = rearrange::<[batch, rows, (rows, w)] -> [batch, rows, w]>(x);
        let m = rearrange::<[batch, rows, (3, w)] -> [batch, rows, 3, w]>(x);
        let n = rearrange::<[batch, rows, (4, heads, 2)] -> [batch, rows, heads, (2, 4)]>(x);
        let o = rearrange::<[batch, rows, d]>(x);
        let p = rearrange::<[batch, rows, (heads, 2, w)] -> [batch, rows, heads, 2, w]>(x);
        let q = rearrange::<[batch, heads = (rows, d)]>(x);
        let r = rearrange::<[batch, rows = d]>(x);
        let s = rearrange::<[batch, (rows, batch)] -> [batch, rows]>(x[d = 0]);
        let t = rearrange::<[(batch, rows)]>(tokens);
        let u = rearrange::<[batch, (rows, width)]>(x);
        a + b + c + e + f + g + h + i + j + k + l + m + n + o + p + q + r + s + t + u
    }
}

model! {
    struct Stacks<d = 8, two = 2>;
    fn forward(x: [batch, seq, d], y: [batch, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = stack(x, x);
        let b = stack::<[batch, seq, d]>(x, x);
        let c = stack::<[batch, 3, seq, d]>(x, x);
        let e = stack::<[batch, two, seq, d]>(x, x, x);
        let f = stack::<[two, seq, batch, d]>(x, y);
        let g = stack::<[batch, seq, batch, d]>(x, y);
        let h = stack::<[2, batch, seq]>(tokens, tokens);
        let i = stack::<two>(x, y);
        a + b + c + e + f + g + h + i
    }
}

const LONG: usize = 5;

model! {
    struct Constants<d = { LONG + 1 }>;
    fn forward(x: [batch, d], y: [batch, LONG]) -> ([batch, 2, 4], [batch, 2, { LONG / 2 }]) {
        let a = rearrange::<[batch, (2, 4)] -> [batch, 2, 4]>(x);
        (a, rearrange::<[batch, (2, n)] -> [batch, 2, n]>(y))
    }
}

fn main() {}
