//! A rotation acts on pairs, by angles from a positive base.

use attn::{attention, dfdx::prelude::*};

const SIX: usize = 6;
const ZERO: f64 = 0.0;

attention! {
    struct Derived<heads = 2, d_model = 6, position = rope>;
    struct Given<heads = 2, d_model = 6, head_dim = 5, position = rope(theta = 500000)>;
    struct One<heads = 6, d_model = 6, position = rope>;
    struct DerivedConst<heads = 2, d_model = SIX, position = rope>;
    struct GivenConst<heads = 2, d_model = 6, head_dim = { SIX - 1 }, position = rope(10000)>;
    struct Theta<heads = 1, d_model = 6, position = rope(0)>;
    struct NegativeTheta<heads = 1, d_model = 6, position = rope(theta = -10000.0)>;
    struct ThetaConst<heads = 1, d_model = 6, position = rope(ZERO)>;
    struct Both<heads = 2, d_model = 6, position = rope(ZERO)>;
    /// 7 heads do not divide 6, which is an error; the missing width to halve is not another one.
    struct OneError<heads = 7, d_model = SIX, position = rope>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 6>, f32, _>; Derived Given One DerivedConst GivenConst Theta NegativeTheta ThetaConst Both OneError);
}
