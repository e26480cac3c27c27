//! An unknown key: the message has the similar one, or all of them.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Misspelled<head = 2, heads = 2, d_model = 16>;
    struct Upper<heads = 2, D_MODEL = 16, d_model = 16>;
    struct Foreign<heads = 2, d_model = 16, batch_first = true>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Misspelled Upper Foreign);
}
