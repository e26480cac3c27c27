//! Every mistake of a body is reported, also those of the keys.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Many<heads = 2, d_model = 16, qk_norm = rmss> {
        param slope: [head] = zeroes;
        fn score(score, hh) { score - slope[h] * (q_idx - kv_idx) }
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx }
        fn score() { 1.0 }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Many);
}
