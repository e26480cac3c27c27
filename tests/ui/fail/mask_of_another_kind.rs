//! A mask consists of words.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Number<heads = 2, d_model = 16, mask = 3>;
    struct Text<heads = 2, d_model = 16, mask = "causal">;
    struct List<heads = 2, d_model = 16, mask = [causal]>;
    struct Operand<heads = 2, d_model = 16, mask = causal & 1>;
    struct Leading<heads = 2, d_model = 16, mask = & causal>;
    struct Grouped<heads = 2, d_model = 16, mask = causal & (padding | 7)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Number Text List Operand Leading Grouped);
}
