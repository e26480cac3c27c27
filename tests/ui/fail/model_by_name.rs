//! Values that are not combined by the names of their axes.

use attn::model;

model! {
    struct Sums<d = 8, rows = 8>;
    fn forward(x: [batch, seq, d], y: [other, d], z: [seq, batch], w: [rows]) -> [batch, seq, d] {
        let a = x + y;
        let b = x * z;
        let c = min(x, w);
        if a < b { a } else { b + c }
    }
}

fn main() {}
