//! Numbers out of range, and division by zero.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Float<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * 1e39 }
    }
    struct Integer<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h + 4_000_000_000) as f32 }
    }
    struct Computed<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + exp(100.0) }
    }
    struct WriteLse<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score + ln(0.0) }
    }
    struct Division<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score / 0.0 }
    }
    struct Remainder<heads = 2, d_model = 16> {
        fn score(score, h, q_idx, kv_idx) { score * (h % (2 - 2)) as f32 }
    }
    struct FirstKey<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { kv_idx > 0 && q_idx % kv_idx == 0 }
    }
    struct Overflow<heads = 2, d_model = 16> {
        fn mask(q_idx, kv_idx) { (q_idx + 1) * 2147483648 * 2147483648 > kv_idx }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Float Integer Computed WriteLse Division Remainder FirstKey Overflow);
}
