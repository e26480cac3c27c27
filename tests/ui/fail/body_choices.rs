//! `if`, its condition and its branches.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Number<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if h { score } else { 1.0 } }
    }
    struct NoElse<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if h < 2 { score } }
    }
    struct Branches<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if h < 2 { score } else { 1 } }
    }
    struct IfLet<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if let 2 = h { score } else { 1.0 } }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Number NoElse Branches IfLet);
}
