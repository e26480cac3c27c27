//! The standard deviation is positive and finite.

use attn::{attention, dfdx::prelude::*};

const ZERO: f32 = 0.0;

attention! {
    struct Zero<heads = 2, d_model = 16, init = normal(0)>;
    struct Negative<heads = 2, d_model = 16, init = normal(std = -0.02)>;
    struct Const<heads = 2, d_model = 16, init = normal(ZERO)>;
    struct Computed<heads = 2, d_model = 16, init = normal(std = { 0.02 * ZERO })>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Zero Negative Const Computed);
}
