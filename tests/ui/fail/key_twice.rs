//! A key is given once.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Twice<heads = 2, d_model = 16, heads = 4>;
    struct Thrice<heads = 2, d_model = 16, mask = causal, mask = padding, mask = causal>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Twice Thrice);
}
