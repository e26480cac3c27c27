//! Keys that contradict an additive score.

use attn::{attention, dfdx::prelude::*};

const N: usize = 4;
const P: f64 = 0.5;

attention! {
    struct HeadDim<heads = 2, d_model = 16, head_dim = 4, score = additive(4)>;
    struct QkNorm<heads = 2, d_model = 16, score = additive(4), qk_norm = rms>;
    struct Scale<heads = 2, d_model = 16, scale = 0.5, score = additive(4)>;
    struct Rope<heads = 2, d_model = 16, score = additive(4), position = rope>;
    struct Alibi<heads = 2, d_model = 16, score = additive(4), position = alibi>;
    struct RelPosBias<heads = 2, d_model = 16, score = additive(4), position = rel_pos_bias(32, 128)>;
    struct All<heads = 2, d_model = 16, head_dim = N, score = additive(N), scale = P, qk_norm = l2, position = alibi>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; HeadDim QkNorm Scale Rope Alibi RelPosBias All);
}
