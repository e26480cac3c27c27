//! Phi-3 for 128,000 tokens: positions whose frequencies are divided by a number for each pair, other ones in long texts than in short ones (LongRoPE,
//! Ding et al. 2024).

use crate::Config;
use attn::{checkpoint::layout::WeightMap, model};
use serde_json::Value;

/// The divisors in texts of at most 4,096 tokens.
pub const SHORT_FACTOR: [f64; 48] = [
    1.05,
    1.05,
    1.05,
    1.1,
    1.1,
    1.1,
    1.2500000000000002,
    1.2500000000000002,
    1.4000000000000004,
    1.4500000000000004,
    1.5500000000000005,
    1.8500000000000008,
    1.9000000000000008,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.000000000000001,
    2.1000000000000005,
    2.1000000000000005,
    2.2,
    2.3499999999999996,
    2.3499999999999996,
    2.3499999999999996,
    2.3499999999999996,
    2.3999999999999995,
    2.3999999999999995,
    2.6499999999999986,
    2.6999999999999984,
    2.8999999999999977,
    2.9499999999999975,
    3.049999999999997,
    3.049999999999997,
    3.049999999999997,
];

/// The divisors in longer texts.
pub const LONG_FACTOR: [f64; 48] = [
    1.0299999713897705,
    1.0499999523162842,
    1.0499999523162842,
    1.0799999237060547,
    1.2299998998641968,
    1.2299998998641968,
    1.2999999523162842,
    1.4499999284744263,
    1.5999999046325684,
    1.6499998569488525,
    1.8999998569488525,
    2.859999895095825,
    3.68999981880188,
    5.419999599456787,
    5.489999771118164,
    5.489999771118164,
    9.09000015258789,
    11.579999923706055,
    15.65999984741211,
    15.769999504089355,
    15.789999961853027,
    18.360000610351562,
    21.989999771118164,
    23.079999923706055,
    30.009998321533203,
    32.35000228881836,
    32.590003967285156,
    35.56000518798828,
    39.95000457763672,
    53.840003967285156,
    56.20000457763672,
    57.95000457763672,
    59.29000473022461,
    59.77000427246094,
    59.920005798339844,
    61.190006256103516,
    61.96000671386719,
    62.50000762939453,
    63.3700065612793,
    63.48000717163086,
    63.48000717163086,
    63.66000747680664,
    63.850006103515625,
    64.08000946044922,
    64.760009765625,
    64.80001068115234,
    64.81001281738281,
    64.81001281738281,
];

model! {
    /// The sizes of `microsoft/Phi-3-mini-128k-instruct`. Every checkpoint has divisors of its own; these are those of the texts of
    /// `microsoft/Phi-3-vision-128k-instruct`.
    pub struct Phi3Long<
        vocab = 32064, d_model = 3072, heads = 32, kv_heads = 32, hidden = 8192, layers = 32, window = 262144, theta = 10000.0,
        short_factor = &SHORT_FACTOR, long_factor = &LONG_FACTOR, original_max_len = 4096, max_len = 131072, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        phi3_long::<.., name = phi3>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Phi3ForCausalLM` of `transformers`, of a file with `longrope`.
    pub block phi3_long(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, hidden, layers, window, theta, short_factor, long_factor,
        original_max_len, max_len, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<
                heads, kv_heads = kv_heads, mask = sliding_window(window), bias = false,
                position = rope(theta, scaling = longrope(
                    short_factor, long_factor, factor = max_len as f64 / original_max_len as f64, original_max_len,
                )),
            >(rms_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    crate::phi3::of_any_length()
        .constants([
            ("rope_parameters.short_factor", "short_factor"),
            ("rope_parameters.long_factor", "long_factor"),
            ("original_max_position_embeddings", "original_max_len"),
            ("max_position_embeddings", "max_len"),
        ])
        .value("rope_parameters.rope_type", "longrope")
        .value("rope_parameters.attention_factor", Value::Null)
        .or("rope_parameters.attention_factor", Value::Null)
}

/// Its files, which are those of [`phi3`](crate::phi3).
pub fn weights() -> WeightMap {
    crate::phi3::weights()
}
