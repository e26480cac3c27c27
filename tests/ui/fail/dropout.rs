//! A probability, less than 1.

use attn::{attention, dfdx::prelude::*};

const ONE: f64 = 1.0;

attention! {
    struct Everything<heads = 2, d_model = 16, dropout = 1.0>;
    struct Percent<heads = 2, d_model = 16, dropout = 10>;
    struct Negative<heads = 2, d_model = 16, dropout = -0.1>;
    struct Large<heads = 2, d_model = 16, dropout = 1e9>;
    struct EverythingConst<heads = 2, d_model = 16, dropout = ONE>;
    struct NegativeConst<heads = 2, d_model = 16, dropout = { -ONE }>;
    struct NotANumber<heads = 2, d_model = 16, dropout = f64::NAN>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Everything Percent Negative Large EverythingConst NegativeConst NotANumber);
}
