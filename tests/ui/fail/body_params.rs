//! The declaration of a learned tensor.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Colon<heads = 2, d_model = 16> {
        param slope = ones;
    }
    struct NoSizes<heads = 2, d_model = 16> {
        param slope: heads = ones;
    }
    struct NoInitializer<heads = 2, d_model = 16> {
        param slope: [heads];
    }
    struct NoSemicolon<heads = 2, d_model = 16> {
        param slope: [heads] = ones
    }
    struct Twice<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        param slope: [heads] = zeros;
        fn score(score, h) { score * slope[h] }
    }
    struct Field<heads = 2, d_model = 16> {
        param q_proj: [heads] = ones;
        fn score(score, h) { score * q_proj[h] }
    }
    struct Argument<heads = 2, d_model = 16> {
        param h: [heads] = ones;
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Colon NoSizes NoInitializer NoSemicolon Twice Field Argument);
}
