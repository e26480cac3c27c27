//! The bracket is closed.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Semicolon<heads = 2, d_model = 16;
    struct Right<heads = 2, d_model = 16>;
}

attention! {
    struct End<heads = 2, d_model = 16
}

attention! {
    struct Comma<heads = 2, d_model = 16,
}

attention! {
    struct Open<
}

attention! {
    struct Shift<heads = 2, d_model = 16 >> 1>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Semicolon Right End Comma Open Shift);
}
