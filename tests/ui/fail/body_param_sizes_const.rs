//! Sizes of a learned tensor that only rustc knows.

use attn::{attention, dfdx::prelude::*};

const ZERO: usize = 0;
const SIGNED: i32 = 2;
const MANY: usize = 1 << 20;

attention! {
    struct Zero<heads = 2, d_model = 16> {
        param slope: [ZERO] = ones;
        fn score(score) { score * slope[0] }
    }
    struct Signed<heads = 2, d_model = 16> {
        param slope: [SIGNED] = ones;
        fn score(score) { score * slope[0] }
    }
    struct Undefined<heads = 2, d_model = 16> {
        param slope: [heads, UNDEFINED] = ones;
        fn score(score, h) { score * slope[h, 0] }
    }
    struct Total<heads = 2, d_model = 16> {
        param slope: [MANY, MANY] = ones;
        fn score(score) { score * slope[0, 0] }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Zero Signed Undefined Total);
}
