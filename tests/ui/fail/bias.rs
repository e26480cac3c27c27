//! `bias` is a truth value or a list of projections.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Number<heads = 2, d_model = 16, bias = 1>;
    struct Text<heads = 2, d_model = 16, bias = "true">;
    struct Tuple<heads = 2, d_model = 16, bias = (q, k)>;
    struct Unknown<heads = 2, d_model = 16, bias = [q, K, output]>;
    struct Twice<heads = 2, d_model = 16, bias = [q, k, q, o]>;
    struct Word<heads = 2, d_model = 16, bias = none>;
    struct Broken<heads = 2, d_model = 16, bias = [q k]>;
    struct TwoCommas<heads = 2, d_model = 16, bias = [q,, k]>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Number Text Tuple Unknown Twice Word Broken TwoCommas);
}
