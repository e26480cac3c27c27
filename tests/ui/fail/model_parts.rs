//! Parts of values that the values do not have.

use attn::model;

model! {
    struct Written<d = 8>;
    fn forward(x: [batch, seq, d]) -> ([batch, d], [batch, d], [batch, d], [batch, d], [batch, d]) {
        let y = x[:, -1];
        let z = x[seq];
        let (a, _) = split(x);
        let (b, c) = layer_norm(x);
        let e = split(x);
        (y, z, a, b + c, (x + e)[seq = 0])
    }
}

model! {
    struct Indices<d = 8>;
    fn forward(x: [batch, seq, d], table: [8, 8]) -> [batch] {
        let a = x[len = 0];
        let b = x[d = 8];
        let c = x[seq = 0, seq = 1];
        let e = table[8 = 0];
        a + b + c + e + x[seq = 1.5, d = 0]
    }
}

model! {
    struct Ranges<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, 4] {
        let a = x[d = 1..=4];
        let b = x[d = 4..9];
        let c = x[d = 4..4];
        let e = x[seq = 1..];
        a + b + c + e
    }
}

model! {
    struct Splits<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (a, b, c) = split(x);
        let (e, f) = split::<seq>(x);
        concat(a, b, c, e, f)
    }
}

fn main() {}
