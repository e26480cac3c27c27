//! Keys that take a word.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Number<heads = 2, d_model = 16, score = 3>;
    struct Text<heads = 2, d_model = 16, position = "rope">;
    struct Truth<heads = 2, d_model = 16, qk_norm = 1.0>;
    struct List<heads = 2, d_model = 16, normalizer = [softmax], init = (normal)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Number Text Truth List);
}
