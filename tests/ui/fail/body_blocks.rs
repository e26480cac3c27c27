//! A block is `let`s and a value.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Empty<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) {  }
    }
    struct NoValue<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let x = score; }
    }
    struct Semicolon<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score; }
    }
    struct Unused<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { h; score }
    }
    struct Mutable<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let mut x = score; x }
    }
    struct Pattern<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let (x, y) = score; x }
    }
    struct NoInit<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { let x; score }
    }
    struct Item<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { const A: f32 = 1.0; score }
    }
    struct Syntax<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Empty NoValue Semicolon Unused Mutable Pattern NoInit Item Syntax);
}
