//! Axes that get longer or shorter, and those that are made of others.

use attn::model;

model! {
    struct Moves<d = 8, more = 9>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = pad::<seq>(x);
        let b = pad::<seq, before = 1>(x);
        let c = pad::<d, after = 2, to = more>(x);
        let e = pad::<seq, after = 2, to = more>(x);
        let f = pad::<seq, after = 2, to = batch>(x);
        let g = pad::<seq, after = 2, to = 3>(x);
        let h = shift::<seq>(x);
        let i = shift::<seq, x>(x);
        let j = shift::<width, 1>(x);
        let k = windows::<seq>(x);
        let l = windows::<seq, 3>(x);
        let m = windows::<d, size = 9>(x);
        let n = windows::<[seq, d], size = 2>(x);
        let o = windows::<seq, size = 3, step = 0, to = o>(x);
        a + b + c + e + f + g + h + i + j + k + l + m + n + o
    }
}

model! {
    struct Lengths<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = concat::<seq>(x, x);
        let b = concat::<seq, to = all>(x, x);
        let c = pad::<seq, before = 1, to = all>(x);
        let e = b[all = 1..];
        let f = rearrange::<[(batch, seq), d]>(x);
        let g = rearrange::<[rows = (batch, seq), d]>(x);
        let h = rearrange::<[(seq, batch), d] -> [batch, seq, d]>(g);
        let i = rearrange::<[batch, (4, 2), d] -> [batch, 4, 2, d]>(x);
        let j = rearrange::<[batch, (n, m), d] -> [batch, n, m, d]>(x);
        let k = rearrange::<[batch, seq, (batch, n)] -> [batch, seq, n]>(x);
        let l = x + b;
        a + b + c + e + f + g + h + i + j + k + l
    }
}

model! {
    struct Results<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, lal, d] {
        concat::<seq, to = all>(x, x)
    }
}

model! {
    struct Sessions<d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
        let x = embedding::<11, d>(tokens);
        x + shift::<seq, 1>(x)
    }
}

fn session(model: &Sessions) {
    let _ = model.session(10);
}

fn main() {}
