//! A number is a literal or a constant expression.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Text<heads = 2, d_model = 16, dropout = "0.1">;
    struct Truth<heads = 2, d_model = 16, scale = true>;
    struct List<heads = 2, d_model = 16, softcap = [30.0]>;
    struct Percent<heads = 2, d_model = 16, dropout = 10%>;
    struct TooLarge<heads = 2, d_model = 16, scale = 1e400>;
    struct Theta<heads = 2, d_model = 16, position = rope("10000")>;
    struct Std<heads = 2, d_model = 16, init = normal(std = "0.02")>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Text Truth List Percent TooLarge Theta Std);
}
