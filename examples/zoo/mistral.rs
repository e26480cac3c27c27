//! Mistral (Jiang et al. 2023): a Llama whose tokens attend to a window.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_llama},
    model,
};

model! {
    /// `mistralai/Mistral-7B-v0.1`: 7.2 billion parameters.
    pub struct Mistral<
        vocab = 32000, d_model = 4096, heads = 32, kv_heads = 8, head_dim = 128, hidden = 14336, layers = 32, window = 4096,
        theta = 10000.0, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        mistral::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `MistralForCausalLM` of `transformers`.
    pub block mistral(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, head_dim, hidden, layers, window, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = sliding_window(window), position = rope(theta), bias = false,
            >(rms_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("mistral")
        .constants([
            ("head_dim", "head_dim"),
            ("sliding_window", "window"),
            ("rms_norm_eps", "epsilon"),
        ])
        .value("rope_parameters.rope_type", "default")
        .value("tie_word_embeddings", false)
        .or("num_key_value_heads", 8)
}

/// Its files.
pub fn weights() -> WeightMap {
    hugging_face_llama().under("mistral.", "")
}
