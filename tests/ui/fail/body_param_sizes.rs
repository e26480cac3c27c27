//! The sizes of a learned tensor.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Empty<heads = 2, d_model = 16> {
        param slope: [] = ones;
    }
    struct Zero<heads = 2, d_model = 16> {
        param slope: [0] = ones;
    }
    struct Near<heads = 2, d_model = 16> {
        param slope: [head] = ones;
    }
    struct Absent<heads = 2, d_model = 16> {
        param slope: [d_context] = ones;
    }
    struct Float<heads = 2, d_model = 16> {
        param slope: [2.0] = ones;
    }
    struct Seven<heads = 2, d_model = 16> {
        param slope: [1, 1, 1, 1, 1, 1, 1] = ones;
    }
    struct Large<heads = 2, d_model = 16> {
        param slope: [heads * 1_000_000] = ones;
    }
    struct Total<heads = 2, d_model = 16> {
        param slope: [1_000_000, 1_000_000] = ones;
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Empty Zero Near Absent Float Seven Large Total);
}
