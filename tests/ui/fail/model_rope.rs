//! Mistakes with `rope(x)`: its axis, its keys, and its positions.

use attn::model;

model! {
    struct Rotations<d = 4, odd = 3>;
    fn forward(x: [batch, seq, d], y: [batch, seq, odd], at: ids[batch, other], h: [d]) -> [batch, seq, d] {
        let a = rope::<rows>(x);
        let b = rope::<d>(x);
        let c = rope(y);
        let e = rope::<seq>(x, at);
        let f = rope(h);
        let g = rope::<seq, dims = 3>(x);
        let i = rope::<seq, theta = -1.0>(x);
        let j = rope::<seq, dims = 6>(x);
        let k = rope(x, x);
        let l = rope::<seq, base = 10.0>(x);
        a + b + e + g + i + j + k + l + mean::<seq>(f) + c
    }
}

fn main() {}
