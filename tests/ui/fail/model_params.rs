//! Learned tensors that cannot be declared so.

use attn::model;

model! {
    struct Declared<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param scale = ones;
        param mut shift: [d] = zeros;
        param mark: ids[d] = zeros;
        param place: [seq, d] = normal(0.02);
        param table: [4, d];
        x * scale + shift + mark + place + table[4 = 0]
    }
}

model! {
    struct Starts<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param a: [d] = xavier;
        param b: [d] = orthogonal;
        param c: [d] = alibi_slopes;
        param e: [d] = normal(std = -0.02);
        param f: [d] = x;
        param g: [d] = [0.1, 0.2];
        x + a + b + c + e + f + g
    }
}

model! {
    struct Names<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let y = linear::<d>(x);
        param linear: [d] = zeros;
        param unread: [d] = ones;
        param gate: [] = 0;
        gate = 2 * gate;
        gate * (y + linear)
    }
}

fn main() {}
