//! Llama 3.2 (Grattafiori et al. 2024): grouped heads, rotary positions whose low frequencies are scaled, a gated feed-forward layer.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_llama},
    model,
};

model! {
    /// `meta-llama/Llama-3.2-1B`: 1.2 billion parameters.
    pub struct Llama<
        vocab = 128256, d_model = 2048, heads = 32, kv_heads = 8, head_dim = 64, hidden = 8192, layers = 16, theta = 500000.0,
        factor = 32.0, low = 1.0, high = 4.0, original_max_len = 8192, epsilon = 1e-5, tied = true,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        llama::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `LlamaForCausalLM` of `transformers`.
    pub block llama(
        tokens: ids[batch, seq],
        vocab, d_model, heads, kv_heads, head_dim, hidden, layers, theta, factor, low, high, original_max_len, epsilon, tied,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = causal, bias = false,
                position = rope(theta, scaling = llama3(factor, low, high, original_max_len)),
            >(rms_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        let x = rms_norm::<epsilon = epsilon>(x);
        if tied { linear::<tied = embedding>(x) } else { linear::<vocab, bias = false>(x) }
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("llama")
        .constants([
            ("head_dim", "head_dim"),
            ("rms_norm_eps", "epsilon"),
            ("tie_word_embeddings", "tied"),
            ("rope_parameters.factor", "factor"),
            ("rope_parameters.low_freq_factor", "low"),
            ("rope_parameters.high_freq_factor", "high"),
            (
                "rope_parameters.original_max_position_embeddings",
                "original_max_len",
            ),
        ])
        .value("rope_parameters.rope_type", "llama3")
        .value("mlp_bias", false)
}

/// Its files.
pub fn weights() -> WeightMap {
    hugging_face_llama().under("llama.", "")
}
