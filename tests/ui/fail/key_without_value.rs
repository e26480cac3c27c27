//! A key has a value.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct NoEquals<heads = 2, d_model = 16, dropout>;
    struct NoValue<heads = 2, d_model = 16, dropout = >;
    struct NoValueBetween<heads = , d_model = 16>;
    struct Colon<heads: 2, d_model = 16>;
    struct EachKind<heads, d_model, mask, score, bias, init>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; NoEquals NoValue NoValueBetween Colon EachKind);
}
