//! The width of a head is `d_model / heads`, which must have no remainder.

use attn::{attention, dfdx::prelude::*};

const HEADS: usize = 7;
const D_MODEL: usize = 16;

attention! {
    struct Literals<heads = 7, d_model = 16>;
    struct MoreHeadsThanWidth<heads = 17, d_model = 16>;
    struct Computed<heads = 2 + 1, d_model = { 2 * 8 }>;
    struct Heads<heads = HEADS, d_model = 16>;
    struct DModel<heads = 7, d_model = D_MODEL>;
    struct Both<heads = HEADS, d_model = D_MODEL>;
    struct Expression<heads = { HEADS - 2 }, d_model = 16>;
    /// Only `value_head_dim` is missing here.
    struct Additive<heads = HEADS, d_model = 16, score = additive(hidden = 4)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Literals MoreHeadsThanWidth Computed Heads DModel Both Expression Additive);
}
