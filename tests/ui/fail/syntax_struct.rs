//! A declaration is a `struct`. The tokens after another keyword are parsed nevertheless.

use attn::{attention, dfdx::prelude::*};

attention! {
    pub enum Enumeration<heads = 2, d_model = 16>;

    pub Forgotten<heads = 2, d_model = 16>;

    struct Right<heads = 2, d_model = 16>;

    heads = 2, d_model = 16
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Right);
}
