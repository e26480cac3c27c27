//! Keys that contradict the other scores.

use attn::{attention, dfdx::prelude::*};

const SCALE: f32 = 0.5;

attention! {
    struct Dot<heads = 2, d_model = 16, score = dot, scale = 0.5>;
    struct DotConst<heads = 2, d_model = 16, score = dot, scale = SCALE>;
    struct Bilinear<heads = 2, d_model = 16, score = bilinear, position = rope>;
    struct BilinearTheta<heads = 2, d_model = 16, position = rope(theta = 500000), score = bilinear>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Dot DotConst Bilinear BilinearTheta);
}
