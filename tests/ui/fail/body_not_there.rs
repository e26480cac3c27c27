//! Functions and values that a body does not have: each message says what to write.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Vectors<heads = 2, d_model = 16> {
        fn score(q, k) { q * k }
    }
    struct Places<heads = 2, d_model = 16> {
        fn mask(q, k) { k <= q }
    }
    struct Undeclared<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + dist[h, q_idx, kv_idx] }
    }
    struct Padding<heads = 2, d_model = 16> {
        fn mask(kv_idx) { kv_idx < lens }
    }
    struct Softmax<heads = 2, d_model = 16> {
        fn score(score) { softmax(score) }
    }
    struct Input<heads = 2, d_model = 16> {
        fn score(score) { score + x }
    }
    struct Lengths<heads = 2, d_model = 16> {
        param bias: [q_len, kv_len] = zeros;
        fn score(score, q_idx, kv_idx) { score + bias[q_idx, kv_idx] }
    }
    struct Letters<heads = 2, d_model = 16> {
        data dist: ids[B, N, N];
        fn score(score, b, q_idx, kv_idx) { score - dist[b, q_idx, kv_idx] as f32 }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Vectors Places Undeclared Padding Softmax Input Lengths Letters);
}
