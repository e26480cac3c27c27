//! Without queries and keys, the keys of the header about them have no effect.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct HeadDim<heads = 2, d_model = 16, head_dim = 4> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Score<heads = 2, d_model = 16, score = additive(hidden = 5)> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Scale<heads = 2, d_model = 16, scale = 0.5> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Softcap<heads = 2, d_model = 16, softcap = 30> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Position<heads = 2, d_model = 16, position = rope> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct QkNorm<heads = 2, d_model = 16, qk_norm = rms> {
        fn normalize(q_idx, kv_idx) { 1.0 / (1 + abs(q_idx - kv_idx)) as f32 }
    }
    struct Bias<heads = 2, d_model = 16, bias = [q, v, o]> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Size<heads = 2, d_model = 16> {
        param table: [head_dim] = zeros;
        fn score(kv_idx) { table[kv_idx % 4] }
    }
    struct Lost<heads = 2, d_model = 16> {
        fn score(score) { 2.0 * score }
        fn normalize(q_idx, kv_idx) { 1.0 / (1 + abs(q_idx - kv_idx)) as f32 }
    }
    struct NothingToRefuse<heads = 2, kv_heads = 1, d_model = 16, value_head_dim = 3, position = none, qk_norm = none, bias = [v, o]> {
        fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; HeadDim Score Scale Softcap Position QkNorm Bias Size Lost NothingToRefuse);
}
