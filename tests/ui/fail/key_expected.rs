//! There is a key between commas.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Literal<2, d_model = 16, heads = 2>;
    struct Text<"heads" = 2, heads = 2, d_model = 16>;
    struct TwoCommas<heads = 2,, d_model = 16>;
    struct LeadingComma<, heads = 2, d_model = 16>;
    struct Lifetime<'a, heads = 2, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Literal Text TwoCommas LeadingComma Lifetime);
}
