//! Learned tensors must have a derivative.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Unread<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score) { score }
    }
    struct NoScore<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
    }
    struct Floor<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + floor(slope[h]) }
    }
    struct Compared<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { if slope[h] > 0.0 { score } else { -score } }
    }
    struct Cancelled<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[h] - slope[h] }
    }
    struct InMask<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[h] }
        fn mask(h) { slope[h] > 0.0 }
    }
    struct NoQueries<heads = 2, d_model = 16> {
        fn score(score, q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Step<heads = 2, d_model = 16> {
        fn score(score) { if score > 0.0 { 1.0 } else { 0.0 } }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Unread NoScore Floor Compared Cancelled InMask NoQueries Step);
}
