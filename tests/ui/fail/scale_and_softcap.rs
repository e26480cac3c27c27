//! Both are positive and finite.

use attn::{attention, dfdx::prelude::*};

const ZERO: f64 = 0.0;
const ONE: f32 = 1.0;

attention! {
    struct Zero<heads = 2, d_model = 16, scale = 0, softcap = 0.0>;
    struct Negative<heads = 2, d_model = 16, scale = -0.125, softcap = -30>;
    struct ZeroConst<heads = 2, d_model = 16, scale = ZERO, softcap = { ZERO * 2.0 }>;
    struct NegativeConst<heads = 2, d_model = 16, scale = -ONE, softcap = { 0.0 - ONE }>;
    struct Infinite<heads = 2, d_model = 16, scale = f64::INFINITY, softcap = f64::NAN>;
    struct Integer<heads = 2, d_model = 16, scale = 1 / 2>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Zero Negative ZeroConst NegativeConst Infinite Integer);
}
