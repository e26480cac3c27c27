//! `heads` and `d_model` have no default.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct NoHeads<d_model = 16>;
    struct NoWidth<heads = 2>;
    struct Neither<mask = causal>;
    struct Nothing<>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; NoHeads NoWidth Neither Nothing);
}
