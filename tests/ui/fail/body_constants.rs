//! The user's constants must have the required type.

use attn::{attention, dfdx::prelude::*};

const FLOAT: f32 = 2.0;
const SIGNED: i32 = 2;
const WIN: i64 = 64;
const TEXT: &str = "2";
const INFINITE: f64 = f64::INFINITY;
const LARGE: usize = usize::MAX;
const ZERO: usize = 0;
const SEEN: bool = true;

attention! {
    struct Undefined<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * UNDEFINED }
    }
    struct IntegerOfFloat<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h + FLOAT) as f32 }
    }
    struct Signed<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h + SIGNED) as f32 }
    }
    struct Window<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { q_idx - kv_idx < WIN }
    }
    struct Text<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * TEXT }
    }
    struct Infinite<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * INFINITE }
    }
    struct Large<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h + LARGE) as f32 }
    }
    struct Division<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h / ZERO) as f32 }
    }
    struct Condition<heads = 2, d_model = 16> {
        fn mask() { SEEN }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Undefined IntegerOfFloat Signed Window Text Infinite Large Division Condition);
}
