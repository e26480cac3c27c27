//! Qwen 3 (Yang et al. 2025): a Llama that norms the queries and keys of each head.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_llama},
    model,
};

model! {
    /// `Qwen/Qwen3-0.6B`: 596 million parameters.
    pub struct Qwen3<
        vocab = 151936, d_model = 1024, heads = 16, kv_heads = 8, head_dim = 128, hidden = 3072, layers = 28, theta = 1000000.0,
        tied = true, epsilon = 1e-6,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Qwen3ForCausalLM` of `transformers`.
    pub block qwen3(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, head_dim, hidden, layers, theta, tied, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = causal, position = rope(theta), qk_norm = rms(epsilon = epsilon), bias = false,
            >(rms_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        let x = rms_norm::<epsilon = epsilon>(x);
        if tied { linear::<tied = embedding>(x) } else { linear::<vocab, bias = false>(x) }
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("qwen3")
        .constants([
            ("head_dim", "head_dim"),
            ("rms_norm_eps", "epsilon"),
            ("tie_word_embeddings", "tied"),
        ])
        .value("rope_parameters.rope_type", "default")
        .value("use_sliding_window", false)
        .or("num_key_value_heads", 32)
        .or("head_dim", 128)
}

/// Its files.
pub fn weights() -> WeightMap {
    hugging_face_llama().under("qwen3.", "")
}
