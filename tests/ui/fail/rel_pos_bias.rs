//! T5's buckets: half for each direction, half of these for exact distances.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct One<heads = 2, d_model = 16, mask = causal, position = rel_pos_bias(num_buckets = 1)>;
    struct Odd<heads = 2, d_model = 16, position = rel_pos_bias(num_buckets = 7)>;
    struct Two<heads = 2, d_model = 16, position = rel_pos_bias(2)>;
    struct Near<heads = 2, d_model = 16, position = rel_pos_bias(32, 8)>;
    struct NearCausal<heads = 2, d_model = 16, mask = causal, position = rel_pos_bias(32, max_distance = 16)>;
    struct ManyForDefault<heads = 2, d_model = 16, position = rel_pos_bias(1024)>;
    struct Zero<heads = 2, d_model = 16, position = rel_pos_bias(num_buckets = 0)>;
    struct ZeroDistance<heads = 2, d_model = 16, position = rel_pos_bias(32, 0)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; One Odd Two Near NearCausal ManyForDefault Zero ZeroDistance);
}
