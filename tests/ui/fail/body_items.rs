//! The items of a body: tensors, `fn score` and `fn mask`, each once.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Weight<heads = 2, d_model = 16> {
        weight bias: [heads];
    }
    struct Function<heads = 2, d_model = 16> {
        fn scores(score) { score }
    }
    struct ScoreMod<heads = 2, d_model = 16> {
        fn score_mod(score) { score }
    }
    struct MaskMod<heads = 2, d_model = 16> {
        fn mask_mod(q_idx, kv_idx) { kv_idx <= q_idx }
    }
    struct Normalize<heads = 2, d_model = 16> {
        fn normalize(score) { score }
    }
    struct FunctionTwice<heads = 2, d_model = 16> {
        fn mask() { true }
        fn mask() { true }
    }
    struct Constant<heads = 2, d_model = 16> {
        const WINDOW: usize = 4;
    }
    struct NoBraces<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) = kv_idx <= q_idx;
    }
    struct Returns<heads = 2, d_model = 16> {
        fn score(score) -> f32 { score }
    }
    struct Generic<heads = 2, d_model = 16> {
        fn score<T>(score) { score }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Weight Function ScoreMod MaskMod Normalize FunctionTwice Constant NoBraces Returns Generic);
}
