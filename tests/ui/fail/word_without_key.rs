//! A value without its key.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Mask<heads = 2, d_model = 16, causal>;
    struct Position<heads = 2, d_model = 16, rope(10000)>;
    struct Unknown<heads = 2, d_model = 16, unheard_of>;
    struct Generic<T, heads = 2, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Mask Position Unknown Generic);
}
