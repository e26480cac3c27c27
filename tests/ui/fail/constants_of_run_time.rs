//! Expressions that a user may expect in a constant, but that are not constant.

use attn::{attention, dfdx::prelude::*};

const HEAD_DIM: usize = 8;

attention! {
    struct Root<heads = 2, d_model = 16, scale = 1.0 / exp(2.0)>;
    struct OfConstant<heads = 2, d_model = 16, scale = 1.0 / (HEAD_DIM as f64).sqrt()>;
    struct Size<heads = sqrt(4.0), d_model = 16>;
    struct Power<heads = 2, d_model = 16, scale = 64 ** -0.5>;
    struct Key<heads = 2, d_model = heads * 8>;
    struct KeyInBraces<heads = 2, d_model = { heads * 8 }>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Root OfConstant Size Power Key KeyInBraces);
    let heads_n = 2;
    attention! { struct Local<heads = heads_n, d_model = 16>; }
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Local);
    let _ = heads_n;
}
