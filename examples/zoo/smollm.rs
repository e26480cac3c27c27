//! SmolLM 2 (Allal et al. 2025): a small Llama without a scaling of positions.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_llama},
    model,
};

model! {
    /// `HuggingFaceTB/SmolLM2-135M`: 135 million parameters.
    pub struct SmolLm<
        vocab = 49152, d_model = 576, heads = 9, kv_heads = 3, hidden = 1536, layers = 30, theta = 100000.0, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        smollm::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `LlamaForCausalLM` of `transformers`.
    pub block smollm(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, hidden, layers, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.04)>(tokens);
        repeat layers {
            x += attention::<heads, kv_heads = kv_heads, mask = causal, position = rope(theta), bias = false>(
                rms_norm::<epsilon = epsilon>(x),
            );
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<tied = embedding>(rms_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("llama")
        .constants([("rms_norm_eps", "epsilon")])
        .value("rope_parameters.rope_type", "default")
        .value("mlp_bias", false)
        .value("tie_word_embeddings", true)
}

/// Its files.
pub fn weights() -> WeightMap {
    hugging_face_llama().under("smollm.", "")
}
