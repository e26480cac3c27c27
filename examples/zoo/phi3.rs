//! Phi-3 (Abdin et al. 2024): a Llama over a window, whose file has queries, keys and values in one matrix, and gate and values in another.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `microsoft/Phi-3-mini-4k-instruct`: 3.8 billion parameters.
    pub struct Phi3<
        vocab = 32064, d_model = 3072, heads = 32, kv_heads = 32, hidden = 8192, layers = 32, window = 2047, theta = 10000.0,
        epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        phi3::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Phi3ForCausalLM` of `transformers`.
    pub block phi3(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, hidden, layers, window, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<heads, kv_heads = kv_heads, mask = sliding_window(window), position = rope(theta), bias = false>(
                rms_norm::<epsilon = epsilon>(x),
            );
            x += feed_forward::<hidden, activation = swiglu>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    of_any_length().value("rope_parameters.rope_type", "default")
}

/// The same without the kind of positions.
pub(crate) fn of_any_length() -> Config {
    Config::llama("phi3")
        .constants([("sliding_window", "window"), ("rms_norm_eps", "epsilon")])
        .value("rope_parameters.partial_rotary_factor", 1)
        .value("tie_word_embeddings", false)
        .or("rms_norm_eps", 1e-5)
        .or("rope_parameters.partial_rotary_factor", 1.0)
}

/// Its files.
pub fn weights() -> WeightMap {
    let stacked = [
        ("attention.q_proj.*", "self_attn.qkv_proj.*"),
        ("attention.k_proj.*", "self_attn.qkv_proj.*"),
        ("attention.v_proj.*", "self_attn.qkv_proj.*"),
        ("feed_forward.gate_proj.*", "mlp.gate_up_proj.*"),
        ("feed_forward.up_proj.*", "mlp.gate_up_proj.*"),
    ];
    let named = [
        ("attention.o_proj.*", "self_attn.o_proj.*"),
        ("feed_forward.down_proj.*", "mlp.down_proj.*"),
        ("rms_norm.*", "input_layernorm.*"),
        ("rms_norm_2.*", "post_attention_layernorm.*"),
    ];
    let ends = [
        ("embedding.*", "model.embed_tokens.*"),
        ("rms_norm.*", "model.norm.*"),
        ("linear.*", "lm_head.*"),
    ];
    let stacked = stacked.map(|(ours, theirs)| Rule::new(ours, theirs).stacked());
    let layer = WeightMap::new(stacked).and(WeightMap::new(
        named.map(|(ours, theirs)| Rule::new(ours, theirs)),
    ));
    layer
        .under("blocks.{}.", "model.layers.{}.")
        .and(WeightMap::new(
            ends.map(|(ours, theirs)| Rule::new(ours, theirs)),
        ))
        .metadata("format", "pt")
        .under("phi3.", "")
}
