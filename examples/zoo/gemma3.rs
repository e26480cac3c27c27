//! Gemma 3 (Gemma Team 2025), for texts: norms of queries and keys, and two bases of positions. Five layers of six see a window.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `google/gemma-3-1b-pt`: 1 billion parameters.
    pub struct Gemma3<
        vocab = 262144, d_model = 1152, heads = 4, kv_heads = 1, head_dim = 256, hidden = 6912, layers = 26, window = 512,
        scalar = 256, theta = 1000000.0, local_theta = 10000.0, epsilon = 1e-6,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gemma3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Gemma3ForCausalLM` of `transformers`.
    pub block gemma3(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, head_dim, hidden, layers, window, scalar, theta, local_theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = sqrt(d_model) * embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers as i {
            let y = rms_norm::<epsilon = epsilon, gain = one_plus, name = input_layernorm>(x);
            let y = attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = if i % 6 == 5 { causal } else { sliding_window(window) },
                position = if i % 6 == 5 { rope(theta) } else { rope(local_theta) }, scale = 1.0 / sqrt(scalar),
                qk_norm = rms(gain = one_plus, epsilon = epsilon), bias = false, name = self_attn,
            >(y);
            x += rms_norm::<epsilon = epsilon, gain = one_plus, name = post_attention_layernorm>(y);
            let y = rms_norm::<epsilon = epsilon, gain = one_plus, name = pre_feedforward_layernorm>(x);
            let y = feed_forward::<hidden, activation = geglu_tanh, name = mlp>(y);
            x += rms_norm::<epsilon = epsilon, gain = one_plus, name = post_feedforward_layernorm>(y);
        }
        linear::<tied = embedding>(rms_norm::<epsilon = epsilon, gain = one_plus>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("gemma3_text")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("head_dim", "head_dim"),
            ("rms_norm_eps", "epsilon"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("query_pre_attn_scalar", "scalar"),
            ("sliding_window", "window"),
            ("rope_parameters.full_attention.rope_theta", "theta"),
            (
                "rope_parameters.sliding_attention.rope_theta",
                "local_theta",
            ),
        ])
        .value("rope_parameters.full_attention.rope_type", "default")
        .value("rope_parameters.sliding_attention.rope_type", "default")
        .value("hidden_activation", "gelu_pytorch_tanh")
        .value("attention_bias", false)
        .value("tie_word_embeddings", true)
        .optional(["attention_bias", "tie_word_embeddings"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let rules = [
        ("blocks.{}.*", "layers.{}.*"),
        ("embedding.*", "embed_tokens.*"),
        ("rms_norm.*", "norm.*"),
    ];
    WeightMap::new(rules.map(|(ours, theirs)| Rule::new(ours, theirs)))
        .under("gemma3.", "model.")
        .tied("lm_head.weight", "model.embed_tokens.weight")
        .metadata("format", "pt")
}
