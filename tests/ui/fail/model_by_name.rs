//! Values that are not combined by the names of their axes.

use attn::model;

model! {
    struct Sums<d = 8, rows = 9>;
    fn forward(x: [batch, seq, d], y: [other, d], z: [batch], w: [rows]) -> [batch, seq, d] {
        let a = x + y;
        let b = z * y;
        let c = min(x, w);
        if a < b { a } else { x + c }
    }
}

fn main() {}
