//! Elements of learned tensors.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct NoTensor<heads = 2, d_model = 16> {
        fn score(score, h) { score + h[0] }
    }
    struct Near<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slop[h] }
    }
    struct Two<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[h, 0] }
    }
    struct Empty<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[] }
    }
    struct Float<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[score] }
    }
    struct Condition<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[h < 2] }
    }
    struct Outside<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[2] }
    }
    struct Negative<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + slope[-1] }
    }
    struct Hidden<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn score(score, h) { score + { let slope = 1.0; slope[h] } }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; NoTensor Near Two Empty Float Condition Outside Negative Hidden);
}
