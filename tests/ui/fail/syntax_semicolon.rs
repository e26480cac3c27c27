//! A declaration ends with `;` or with a body.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct End<heads = 2, d_model = 16>
}

attention! {
    struct Body<heads = 2, d_model = 16> {};
    struct Tuple<heads = 2, d_model = 16>(f32);
    struct Where<heads = 2, d_model = 16> where f32: Copy;
    struct Right<heads = 2, d_model = 16>;
}

attention! {
    struct Next<heads = 2, d_model = 16>
    struct AfterNext<heads = 2, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; End Body Tuple Where Right Next AfterNext);
}
