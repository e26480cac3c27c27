//! `ensure` is a list of claims.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Number<heads = 2, d_model = 16, ensure = 3>;
    struct Unknown<heads = 2, d_model = 16, ensure = every_query_attend>;
    struct Nothing<heads = 2, d_model = 16, ensure = { }>;
    struct Or<heads = 2, d_model = 16, ensure = causal | every_query_attends>;
    struct Not<heads = 2, d_model = 16, ensure = !causal>;
    struct Doubled<heads = 2, d_model = 16, mask = causal, ensure = { causal && every_query_attends }>;
    struct Ends<heads = 2, d_model = 16, mask = causal, ensure = { causal & }>;
    struct Length<heads = 2, d_model = 16, mask = causal, ensure = sliding_window(0)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Number Unknown Nothing Or Not Doubled Ends Length);
}
