//! Qwen 2 and 2.5 (Yang et al. 2024): a Llama with biases of queries, keys and values.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_llama},
    model,
};

model! {
    /// `Qwen/Qwen2.5-0.5B`: 494 million parameters.
    pub struct Qwen2<
        vocab = 151936, d_model = 896, heads = 14, kv_heads = 2, hidden = 4864, layers = 24, theta = 1000000.0, epsilon = 1e-6,
        tied = true,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen2::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Qwen2ForCausalLM` of `transformers`.
    pub block qwen2(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, hidden, layers, theta, epsilon, tied,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<heads, kv_heads = kv_heads, mask = causal, position = rope(theta), bias = [q, k, v]>(
                rms_norm::<epsilon = epsilon>(x),
            );
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        let x = rms_norm::<epsilon = epsilon>(x);
        if tied { linear::<tied = embedding>(x) } else { linear::<vocab, bias = false>(x) }
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("qwen2")
        .constants([("rms_norm_eps", "epsilon"), ("tie_word_embeddings", "tied")])
        .value("rope_parameters.rope_type", "default")
        .value("use_sliding_window", false)
        .or("num_key_value_heads", 32)
}

/// Its files.
pub fn weights() -> WeightMap {
    hugging_face_llama().under("qwen2.", "")
}
