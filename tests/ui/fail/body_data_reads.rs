//! Data in expressions.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Indices<heads = 2, d_model = 16> {
        data doc: ids[batch, q_len];
        fn mask(q_idx, kv_idx) { doc[q_idx] == doc[kv_idx, 0, 0] }
    }
    struct NoIndex<heads = 2, d_model = 16> {
        data doc: ids[batch];
        fn mask(b) { doc == 0 || doc(b) == 1 }
    }
    struct Outside<heads = 2, d_model = 16> {
        data doc: ids[heads];
        fn mask() { doc[2] == 0 }
    }
    struct FloatIndex<heads = 2, d_model = 16> {
        param bias: [4] = zeros;
        data far: [batch, q_len];
        fn score(score, b, q_idx) { score + bias[far[b, q_idx]] }
    }
    struct Mixed<heads = 2, d_model = 16> {
        data doc: ids[batch];
        data far: [batch];
        fn score(score, b) { score + doc[b] }
        fn mask(b) { doc[b] < far[b] }
    }
    struct NotACondition<heads = 2, d_model = 16> {
        data valid: [batch, kv_len];
        fn mask(b, kv_idx) { valid[b, kv_idx] }
    }
    struct LearnedIndex<heads = 2, d_model = 16> {
        param bias: [4] = zeros;
        data far: [4];
        fn score(score, h) { score + bias[h] * far[bias[0] as i64] }
    }
    struct NearName<heads = 2, d_model = 16> {
        data document_of: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { document_of[b, q_idx] == documentof[b, kv_idx] }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Indices NoIndex Outside FloatIndex Mixed NotACondition LearnedIndex NearName);
}
