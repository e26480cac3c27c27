//! Mistakes with what a `scan` keeps.

use attn::model;

model! {
    struct Kept<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let a = scan seq, keep = none { state h: [batch, d] = 0; h = h + x; yield h; };
        let b = scan seq, keep { state h: [batch, d] = 0; h = h + x; yield h; };
        let c = scan seq, checkpoint = true { state h: [batch, d] = 0; h = h + x; yield h; };
        a + b + c
    }
}

fn main() {}
