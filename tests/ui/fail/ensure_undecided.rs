//! Constants that the macro cannot evaluate, products, floats and data make a claim undecided, and the message says so.

use attn::{attention, dfdx::prelude::*};

const N: usize = 4;
const FAR: usize = 8;

attention! {
    struct Prefix<heads = 2, d_model = 16, mask = prefix_lm(N), ensure = causal>;
    struct Windows<heads = 2, d_model = 16, mask = sliding_window(N), ensure = { causal & sliding_window({ FAR / 2 }) }>;
    struct Products<heads = 2, d_model = 16, ensure = causal> {
        fn mask(q_idx, kv_idx) { kv_idx * kv_idx <= q_idx * q_idx }
    }
    struct Floats<heads = 2, d_model = 16, ensure = causal> {
        fn mask(q_idx, kv_idx) { sqrt(kv_idx as f32) <= sqrt(q_idx as f32) }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Prefix Windows Products Floats);
}
