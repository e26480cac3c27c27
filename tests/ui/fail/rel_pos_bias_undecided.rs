//! The declaration decides the buckets: the words of the mask, or `bidirectional`.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Function<heads = 2, d_model = 16, position = rel_pos_bias> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
    }
    struct Negated<heads = 2, d_model = 16, mask = !(!causal), position = rel_pos_bias(8, 16)>;
    struct OfRope<heads = 2, d_model = 16, position = rope, bidirectional = false>;
    struct Alone<heads = 2, d_model = 16, bidirectional = true>;
    struct Unknown<heads = 2, d_model = 16, position = rel_pos_bias, bidirectional = yes>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Function Negated OfRope Alone Unknown);
}
