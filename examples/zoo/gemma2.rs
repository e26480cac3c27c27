//! Gemma 2 (Gemma Team 2024): bounds on scores and logits, norms before and behind each layer, and a window in every other one.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `google/gemma-2-2b`: 2.6 billion parameters.
    pub struct Gemma2<
        vocab = 256000, d_model = 2304, heads = 8, kv_heads = 4, head_dim = 256, hidden = 9216, layers = 26, window = 4096,
        scalar = 256, cap = 50.0, final_cap = 30.0, theta = 10000.0, epsilon = 1e-6,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gemma2::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Gemma2ForCausalLM` of `transformers`.
    pub block gemma2(
        tokens: ids[batch, seq],
        vocab, d_model, heads, kv_heads, head_dim, hidden, layers, window, scalar, cap, final_cap, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = sqrt(d_model) * embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers as i {
            let y = rms_norm::<epsilon = epsilon, gain = one_plus, name = input_layernorm>(x);
            let y = attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = if i % 2 == 0 { sliding_window(window) } else { causal },
                position = rope(theta), scale = 1.0 / sqrt(scalar), softcap = cap, bias = false, name = self_attn,
            >(y);
            x += rms_norm::<epsilon = epsilon, gain = one_plus, name = post_attention_layernorm>(y);
            let y = rms_norm::<epsilon = epsilon, gain = one_plus, name = pre_feedforward_layernorm>(x);
            let y = feed_forward::<hidden, activation = geglu_tanh, name = mlp>(y);
            x += rms_norm::<epsilon = epsilon, gain = one_plus, name = post_feedforward_layernorm>(y);
        }
        let logits = linear::<tied = embedding>(rms_norm::<epsilon = epsilon, gain = one_plus>(x));
        final_cap * tanh(logits / final_cap)
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("gemma2")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("head_dim", "head_dim"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("query_pre_attn_scalar", "scalar"),
            ("sliding_window", "window"),
            ("attn_logit_softcapping", "cap"),
            ("final_logit_softcapping", "final_cap"),
            ("rms_norm_eps", "epsilon"),
            ("rope_parameters.rope_theta", "theta"),
        ])
        .value("rope_parameters.rope_type", "default")
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
        .under("gemma2.", "model.")
        .tied("lm_head.weight", "model.embed_tokens.weight")
        .metadata("format", "pt")
}
