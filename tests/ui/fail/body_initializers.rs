//! Initial values of a learned tensor.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Unknown<heads = 2, d_model = 16> {
        param slope: [heads] = zeroes;
    }
    struct NoArgument<heads = 2, d_model = 16> {
        param slope: [heads] = normal;
    }
    struct NoDeviation<heads = 2, d_model = 16> {
        param slope: [heads] = normal(std = 0.0);
    }
    struct Negative<heads = 2, d_model = 16> {
        param slope: [heads] = uniform(bound = -1);
    }
    struct Text<heads = 2, d_model = 16> {
        param slope: [heads] = "0";
    }
    struct Slopes<heads = 2, d_model = 16> {
        param slope: [3] = alibi_slopes;
    }
    struct Large<heads = 2, d_model = 16> {
        param slope: [heads] = 1e300;
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Unknown NoArgument NoDeviation Negative Text Slopes Large);
}
