//! The arguments of a function are known names.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Typed<heads = 2, d_model = 16> {
        fn score(score: f32) { score }
    }
    struct Unknown<heads = 2, d_model = 16> {
        fn score(score, head) { score }
    }
    struct Near<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_id) { q_idx < 2 }
    }
    struct Twice<heads = 2, d_model = 16> {
        fn mask(h, q_idx, h) { h < q_idx }
    }
    struct Second<heads = 2, d_model = 16> {
        fn score(h, score) { score * h as f32 }
    }
    struct ScoreInMask<heads = 2, d_model = 16> {
        fn mask(score) { true }
    }
    struct NotDeclared<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx + kv_len - q_len }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Typed Unknown Near Twice Second ScoreInMask NotDeclared);
}
