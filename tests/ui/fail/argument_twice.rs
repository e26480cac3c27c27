//! An argument is given once, by position or by name.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct ByName<heads = 2, d_model = 16, mask = sliding_window(n = 4, n = 8)>;
    struct ByBoth<heads = 2, d_model = 16, position = rope(10000, theta = 500000)>;
    struct Flag<heads = 2, d_model = 16, mask = sliding_window(4, symmetric, symmetric)>;
    struct Contrary<heads = 2, d_model = 16, mask = causal(lower_right, upper_left)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; ByName ByBoth Flag Contrary);
}
