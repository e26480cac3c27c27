//! Names of values.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Near<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { scor }
    }
    struct Unknown<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + alpha }
    }
    struct WithoutIndex<heads = 2, d_model = 16> {
        fn score(score) { score + slope }
    }
    struct Function<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + exp }
    }
    struct Infinite<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if kv_idx > q_idx { f32::NEG_INFINITY } else { score } }
    }
    struct ScoreInMask<heads = 2, d_model = 16> {
        fn mask(q_idx) { score > 0.0 }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Near Unknown WithoutIndex Function Infinite ScoreInMask);
}
