//! Normalizers in a body.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Twice<heads = 2, d_model = 16, normalizer = softmax1> {
        fn normalize { sparsemax }
    }
    struct Near<heads = 2, d_model = 16> {
        fn normalize { spasemax }
    }
    struct NearCall<heads = 2, d_model = 16> {
        fn normalize { rleu(2) }
    }
    struct Alias<heads = 2, d_model = 16> {
        fn normalize() { off_by_one }
    }
    struct NoPower<heads = 2, d_model = 16> {
        fn normalize(score) { relu(0) }
    }
    struct ScoreAsPower<heads = 2, d_model = 16> {
        fn normalize(score) { relu(score) }
    }
    struct Called<heads = 2, d_model = 16> {
        fn normalize(score) { softmax(score) }
    }
    struct Function<heads = 2, d_model = 16> {
        fn normalize { tanh }
    }
    struct NoArgument<heads = 2, d_model = 16> {
        fn normalize { tanh(score) }
    }
    struct Integer<heads = 2, d_model = 16> {
        fn normalize(score, kv_idx) { kv_idx }
    }
    struct NoScore<heads = 2, d_model = 16> {
        fn normalize(score, q_idx, kv_idx) { (q_idx - kv_idx) as f32 }
    }
    struct Step<heads = 2, d_model = 16> {
        fn normalize(score) { if score > 0.0 { 1.0 } else { 0.0 } }
    }
    struct Unlearned<heads = 2, d_model = 16> {
        param slope: [heads] = ones;
        fn normalize(score, h) { score * floor(slope[h]) }
    }
    struct Sunk<heads = 2, d_model = 16> {
        param sink: [heads] = zeros;
        fn normalize(score, h) { exp(score - sink[h]) }
    }
    struct Capital<heads = 2, d_model = 16> {
        fn normalize { Softmax }
    }
    struct Squared<heads = 2, d_model = 16> {
        fn normalize { relu^2 }
    }
    struct Divided<heads = 2, d_model = 16> {
        fn normalize(score, kv_len) { softmax / kv_len }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Twice Near NearCall Alias NoPower ScoreAsPower Called Function NoArgument Integer NoScore Step Unlearned Sunk Capital Squared Divided);
}
