//! Integers, floats and conditions do not mix.

use attn::{attention, dfdx::prelude::*};

const ZERO: usize = 0;

attention! {
    struct IntegerAndFloat<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score - (q_idx - kv_idx) }
    }
    struct Literal<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * 2 }
    }
    struct Comparison<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if q_idx > 2.0 { score } else { 1.0 } }
    }
    struct Logic<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if h && q_idx < 2 { score } else { 1.0 } }
    }
    struct Arithmetic<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + (h < 2) }
    }
    struct Not<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if !h { score } else { 1.0 } }
    }
    struct Minus<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { if -(h < 2) { score } else { 1.0 } }
    }
    struct CastOfCondition<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + (h < 2) as f32 }
    }
    struct UnknownType<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + h as f16 }
    }
    struct Annotation<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let x: f32 = h; score + x }
    }
    struct ScoreIsInteger<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { q_idx }
    }
    struct MaskIsNumber<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { q_idx - kv_idx }
    }
    struct MaskIsConstant<heads = 2, d_model = 16> {
        fn mask() { ZERO }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; IntegerAndFloat Literal Comparison Logic Arithmetic Not Minus CastOfCondition UnknownType Annotation ScoreIsInteger MaskIsNumber MaskIsConstant);
}
