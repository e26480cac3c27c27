//! Attributes and visibilities are Rust's.

use attn::{attention, dfdx::prelude::*};

attention! {
    #[derive(Missing)]
    struct Derive<heads = 2, d_model = 16>;
    pub(nowhere) struct Visible<heads = 2, d_model = 16>;
    #![allow(dead_code)]
    struct Inner<heads = 2, d_model = 16>;
    struct Right<heads = 2, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Derive Visible Inner Right);
}
