//! The keys are in angle brackets.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Bare;
    struct Called(heads = 2, d_model = 16);
    struct Fields { heads: 2, d_model: 16 }
    struct Bracket[heads = 2, d_model = 16];
    struct Right<heads = 2, d_model = 16>;
}

attention! {
    struct Alone
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Bare Called Fields Bracket Right Alone);
}
