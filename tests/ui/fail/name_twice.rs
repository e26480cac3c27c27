//! Layers of one call have different names.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Twice<heads = 2, d_model = 16>;
    pub struct Other<heads = 2, d_model = 16>;
    struct Twice<heads = 4, d_model = 16>;
    pub(crate) struct Other<heads = 3, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Twice Other);
}
