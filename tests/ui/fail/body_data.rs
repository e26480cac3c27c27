//! Declarations of data.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Unread<heads = 2, d_model = 16> {
        data doc: ids[batch, q_len];
    }
    struct Initial<heads = 2, d_model = 16> {
        data doc: ids[batch, q_len] = zeros;
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
    struct LearnedIds<heads = 2, d_model = 16> {
        param kind: ids[heads] = zeros;
        fn score(score, h) { score * kind[h] }
    }
    struct UnknownAxis<heads = 2, d_model = 16> {
        data doc: ids[batches, qlen];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
    struct Arithmetic<heads = 2, d_model = 16> {
        data doc: ids[2 * q_len];
        fn mask(q_idx, kv_idx) { doc[q_idx] == doc[kv_idx] }
    }
    struct NoAxes<heads = 2, d_model = 16> {
        data doc: ids[];
        fn mask(q_idx, kv_idx) { doc[q_idx] == doc[kv_idx] }
    }
    struct Twice<heads = 2, d_model = 16> {
        param bias: [heads] = zeros;
        data bias: [heads];
        fn score(score, h) { score * bias[h] }
    }
    struct Names<heads = 2, d_model = 16> {
        data q_idx: ids[q_len];
        data context: ids[q_len];
        data heads: ids[q_len];
    }
    struct AnotherType<heads = 2, d_model = 16> {
        data doc: usize[batch, q_len];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Unread Initial LearnedIds UnknownAxis Arithmetic NoAxes Twice Names AnotherType);
}
