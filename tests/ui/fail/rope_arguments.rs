//! The scaling, the dims and the switches of rotary embeddings.

use attn::attention;

const THREE: usize = 3;
const TEN: usize = 10;
const FACTOR: f64 = 0.0;

attention! {
    struct Unknown<heads = 1, d_model = 8, position = rope(scaling = llama(8.0))>;
    struct Missing<heads = 1, d_model = 8, position = rope(scaling = llama3(8, 1, 4))>;
    struct NotAWord<heads = 1, d_model = 8, position = rope(scaling = 2.0)>;
    struct Factor<heads = 1, d_model = 8, position = rope(scaling = linear(0))>;
    struct FactorConst<heads = 1, d_model = 8, position = rope(scaling = ntk(FACTOR))>;
    struct Bounds<heads = 1, d_model = 8, position = rope(scaling = llama3(8, 4, 1, 8192))>;
    struct Betas<heads = 1, d_model = 8, position = rope(scaling = yarn(8, 4096, beta_fast = 0.5))>;
    struct Length<heads = 1, d_model = 8, position = rope(scaling = yarn(8, 0))>;
    struct Odd<heads = 1, d_model = 8, position = rope(dims = 3)>;
    struct OddConst<heads = 1, d_model = 8, position = rope(dims = THREE)>;
    struct Wide<heads = 1, d_model = 8, position = rope(dims = 10)>;
    struct WideConst<heads = 1, d_model = 8, position = rope(dims = TEN)>;
    struct None<heads = 1, d_model = 8, position = rope(dims = 0)>;
    struct Switch<heads = 1, d_model = 8, position = rope(interleaved = 1)>;
    struct Twice<heads = 1, d_model = 8, position = rope(interleaved, interleaved = true)>;
    struct Gain<heads = 1, d_model = 8, qk_norm = rms(gain = one)>;
}

fn main() {}
