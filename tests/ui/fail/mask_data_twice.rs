//! The call takes the data of a mask once.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Padding<heads = 2, d_model = 16, mask = padding & padding>;
    struct Document<heads = 2, d_model = 16, mask = document | !(causal & document)>;
    struct Both<heads = 2, d_model = 16, mask = (padding & document) | (document & padding)>;
    struct Thrice<heads = 2, d_model = 16, mask = padding | padding | padding>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Padding Document Both Thrice);
}
