//! The same rules for constants as for literals.

use attn::{attention, dfdx::prelude::*};

const ONE: usize = 1;
const SEVEN: usize = 7;
const MANY: usize = 512;

attention! {
    struct OneConst<heads = 2, d_model = 16, mask = causal, position = rel_pos_bias(num_buckets = ONE)>;
    struct OddConst<heads = 2, d_model = 16, position = rel_pos_bias(num_buckets = SEVEN)>;
    struct NearConst<heads = 2, d_model = 16, position = rel_pos_bias(32, max_distance = SEVEN)>;
    struct ManyConst<heads = 2, d_model = 16, mask = causal, position = rel_pos_bias(MANY)>;
    struct BothConst<heads = 2, d_model = 16, position = rel_pos_bias(MANY, SEVEN)>;
    struct ZeroConst<heads = 2, d_model = 16, position = rel_pos_bias(num_buckets = { ONE - 1 })>;
    struct ZeroDistanceConst<heads = 2, d_model = 16, position = rel_pos_bias(32, { ONE - 1 })>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; OneConst OddConst NearConst ManyConst BothConst ZeroConst ZeroDistanceConst);
}
