//! Sizes that only rustc can evaluate.

use attn::model;

const WIDTH: usize = 8;
const OTHER: usize = 9;
const HEADS: usize = 3;
const NONE: usize = 0;

model! {
    struct Constants<d_model = WIDTH>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, OTHER] {
        x + linear::<OTHER>(x)
    }
}

model! {
    struct Heads<d_model = WIDTH>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        attention::<HEADS>(x)
    }
}

model! {
    struct Rounds<d_model = WIDTH>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let mut x = x;
        repeat 2 {
            x = linear::<OTHER>(x);
        }
        x
    }
}

model! {
    struct Nothing<vocab = NONE, d_model = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d_model] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat NONE {
            x = feed_forward::<{ 2 * NONE }>(x);
        }
        x
    }
}

fn main() {}
