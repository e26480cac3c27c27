//! A layer has a name.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct<heads = 2, d_model = 16>;
    pub struct 2<heads = 2, d_model = 16>;
    pub(crate) struct fn<heads = 2, d_model = 16>;
    struct Right<heads = 2, d_model = 16>;
}

attention! {
    struct
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Right);
}
