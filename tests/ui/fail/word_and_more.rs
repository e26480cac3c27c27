//! Only masks combine.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Both<heads = 2, d_model = 16, position = rope & alibi>;
    struct Sum<heads = 2, d_model = 16, score = dot + bilinear>;
    struct TwoWords<heads = 2, d_model = 16, normalizer = softmax sigmoid>;
    struct Method<heads = 2, d_model = 16, init = normal(0.02).clamp()>;
    struct Power<heads = 2, d_model = 16, normalizer = relu^2>;
    struct Path<heads = 2, d_model = 16, score = Score::Dot>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Both Sum TwoWords Method Power Path);
}
