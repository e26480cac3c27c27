//! Indices with constant bounds that are out of bounds of a tensor.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct OffByOne<heads = 2, d_model = 16> {
        param bias: [heads, 17] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[h, clamp(q_idx - kv_idx, 0, 17)] }
    }
    struct Transposed<heads = 2, d_model = 16> {
        param bias: [heads, 17] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[clamp(q_idx - kv_idx, 0, 16), h] }
    }
    struct NextHead<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score * slope[h + 1] }
    }
    struct Centred<heads = 2, d_model = 16> {
        param bias: [5] = zeros;
        fn score(score, q_idx, kv_idx) { score + bias[clamp(q_idx - kv_idx, -2, 2)] }
    }
    struct OfData<heads = 2, d_model = 16> {
        param bias: [32] = zeros;
        data distance: ids[q_len, kv_len];
        fn score(score, q_idx, kv_idx) { score + bias[min(distance[q_idx, kv_idx], 32)] }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; OffByOne Transposed NextHead Centred OfData);
}
