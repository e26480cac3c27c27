//! Expressions of Rust that a body does not have.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Loop<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let x = score; for i in 0..3 { } x }
    }
    struct Closure<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let f = |x| x; score }
    }
    struct Match<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { match h { 0 => score, _ => 1.0 } }
    }
    struct Return<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { return score }
    }
    struct Assignment<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score = 1.0; score }
    }
    struct AddAssignment<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score += 1.0; score }
    }
    struct Macro<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + max!(1.0, 2.0) }
    }
    struct Reference<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { *&score }
    }
    struct Tuple<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { (score, 1.0) }
    }
    struct And<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if (h < 2) & (q_idx < 2) { score } else { 1.0 } }
    }
    struct Xor<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score ^ 2.0 }
    }
    struct AbsDiff<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { q_idx.abs_diff(kv_idx) < 3 }
    }
    struct Where<heads = 2, d_model = 16> {
        fn score(score, h) { where(h < 1, score, 2.0 * score) }
    }
    struct Chain<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { 0 < kv_idx < q_idx }
    }
    struct Text<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { "score" }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Loop Closure Match Return Assignment AddAssignment Macro Reference Tuple And Xor AbsDiff Where Chain Text);
}
