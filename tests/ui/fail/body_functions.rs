//! Calls.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Near<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { exq(score) }
    }
    struct Unknown<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + tan(h as f32) }
    }
    struct Alias<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { log(score) }
    }
    struct Few<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { max(score) }
    }
    struct Many<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { exp(score, 2.0) }
    }
    struct Recursion<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score(score) }
    }
    struct OtherFunction<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if mask(h) { score } else { 1.0 } }
    }
    struct Helper<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { helper(score) }
    }
    struct Integer<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + exp(h) }
    }
    struct Mixed<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { max(score, 0) }
    }
    struct Bounds<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { clamp(score, 1.0, -1.0) }
    }
    struct Exponent<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { pow(score, h) }
    }
    struct Method<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score.exp() }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Near Unknown Alias Few Many Recursion OtherFunction Helper Integer Mixed Bounds Exponent Method);
}
