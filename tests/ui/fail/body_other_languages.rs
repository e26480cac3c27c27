//! Spellings of other languages that Rust writes in another form.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct And<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx and q_idx - kv_idx < 4 }
    }
    struct Or<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx or kv_idx < 4 }
    }
    struct Not<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { not (kv_idx > q_idx) }
    }
    struct Choice<heads = 2, d_model = 16> {
        fn score(score, h) { score if h < 1 else 2.0 * score }
    }
    struct Power<heads = 2, d_model = 16> {
        fn score(score) { score + score ** 2 }
    }
    struct Infinite<heads = 2, d_model = 16> {
        fn score(score, q_idx, kv_idx) { if kv_idx > q_idx { -inf } else { score } }
    }
    struct Binds<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { q_idx >= kv_idx & q_idx - kv_idx < 4 }
    }
    struct Ternary<heads = 2, d_model = 16> {
        fn score(score, q_idx) { q_idx % 2 == 0 ? score : 0.0 }
    }
    struct Elif<heads = 2, d_model = 16> {
        fn score(score, h) { if h == 0 { score } elif h == 1 { 2.0 * score } else { 0.5 * score } }
    }
    struct Nested<heads = 2, d_model = 16> {
        fn score(score) { fn f(x) { x } f(score) }
    }
    struct Slice<heads = 2, d_model = 16> {
        param bias: [heads, 4] = zeros;
        fn score(score, h) { score * bias[h, :] }
    }
    struct Twice<heads = 2, d_model = 16> {
        param bias: [heads, 17] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[h][clamp(q_idx - kv_idx, 0, 16)] }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; And Or Not Choice Power Infinite Binds Ternary Elif Nested Slice Twice);
}
