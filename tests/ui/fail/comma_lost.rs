//! Keys are separated by commas.

use attn::{attention, dfdx::prelude::*, model};

attention! {
    struct Second<heads = 2 d_model = 16>;
    struct Last<heads = 2, d_model = 16, mask = causal & sliding_window(n = 3) dropout = 0.1>;
    struct Twice<heads = { 1 + 1 } d_model = 16 kv_heads = 1 dropout = 0.1>;
}

model! {
    struct Sizes<width = 8 out = 3>;
    fn forward(x: [batch, width]) -> [batch, out] { linear::<out = out bias = false>(x) }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Second Last Twice);
    let _ = Sizes::PARAMS;
}
