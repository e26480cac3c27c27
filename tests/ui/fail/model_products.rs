//! Products over axes by name, and other names for axes.

use attn::model;

model! {
    struct Products<d = 8, e = 4>;
    fn forward(x: [batch, seq, d], w: [d, e], square: [8, 8], tokens: ids[batch, seq]) -> [batch, seq, e] {
        let a = einsum(x, w);
        let b = einsum::<"bsd,de->bse">(x, w);
        let c = einsum("bsd,de->bse", x, w);
        let f = einsum::<[batch, sek, e]>(x, w);
        let g = einsum::<[batch, batch, e]>(x, w);
        let h = einsum::<[batch, seq]>(x, square);
        let i = einsum::<[batch, seq, d]>(x, tokens);
        let j = bmm(x, w);
        let k = x @ w;
        a + b + c + f + g + h + i + j + k
    }
}

model! {
    struct Names<d = 8, e = 4>;
    fn forward(x: [batch, seq, d], y: [batch, seq, e]) -> [batch, seq, d] {
        let a = x as [batch, d];
        let b = x as [seq, batch, d];
        let c = x as [batch, seq, e = d];
        let f = x as [batch, batch = seq, d];
        let g = x as f32;
        let h = x as [batch, kv = seq, d];
        let i = sum::<seq>(h);
        a + b + c + f + g + h + i + y
    }
}

const WIDE: usize = 9;

model! {
    struct Constants<d = 8>;
    fn forward(x: [batch, WIDE], y: [d]) -> [batch, d] {
        einsum::<[batch, d]>(x as [batch, d = WIDE], y)
    }
}

fn main() {}
