//! A size is at least 1; the largest keep their products within range.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct NoHeads<heads = 0, d_model = 16>;
    struct NoWidth<heads = 2, d_model = 0>;
    struct EachKey<heads = 2, d_model = 16, kv_heads = 0, head_dim = 0, value_head_dim = 0, d_context = 0>;
    struct Hidden<heads = 2, d_model = 16, score = additive(hidden = 0)>;
    struct TooLarge<heads = 2, d_model = 16, head_dim = 1_048_577>;
    struct Larger<heads = 2, d_model = 16, kv_heads = 18_446_744_073_709_551_615>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; NoHeads NoWidth EachKey Hidden TooLarge Larger);
}
