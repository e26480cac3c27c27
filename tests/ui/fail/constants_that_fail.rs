//! Constants that cannot be evaluated.

use attn::{attention, dfdx::prelude::*};

const ONE: usize = 1;

attention! {
    struct Underflow<heads = 2, d_model = 16, head_dim = { ONE - 2 }>;
    struct Overflow<heads = { usize::MAX * 2 }, d_model = 16>;
    struct Division<heads = 2, d_model = { 16 / (ONE - 1) }>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Underflow Overflow Division);
}
