//! GPT-OSS (OpenAI 2025): experts with biases, a sink for each head, and a window in every other layer.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `openai/gpt-oss-20b`: 21 billion parameters, of which a token reads 3.6 billion. Its files must not be quantized.
    pub struct GptOss<
        vocab = 201088, d_model = 2880, heads = 64, kv_heads = 8, head_dim = 64, hidden = 2880, layers = 24, experts = 32, chosen = 4,
        window = 128, limit = 7.0, theta = 150000.0, factor = 32.0, original_max_len = 4096, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt_oss::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `GptOssForCausalLM` of `transformers`.
    pub block gpt_oss(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, head_dim, hidden, layers, experts, chosen, window, limit, theta, factor,
        original_max_len, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers as i {
            x += attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = if i % 2 == 0 { sliding_window(window) } else { causal },
                normalizer = sink, position = rope(theta, scaling = yarn(factor, original_max_len, truncate = false)),
            >(rms_norm::<epsilon = epsilon>(x));
            x += moe::<..>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }

    /// The experts that a router prefers, with gates that are limited.
    block moe(x: [.., n], experts, chosen, hidden, limit) -> [.., n] {
        let (best, ids) = top_k::<experts, k = chosen>(linear::<experts, name = router>(x));
        let gate = min(grouped_linear::<hidden, experts, name = gate_proj>(x, ids), limit);
        let up = clamp(grouped_linear::<hidden, experts, name = up_proj>(x, ids), -limit, limit);
        let h = (up + 1) * gate * sigmoid(1.702 * gate);
        sum::<chosen>(softmax(best) * grouped_linear::<n, experts, name = down_proj>(h, ids))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("gpt_oss")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("head_dim", "head_dim"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("num_local_experts", "experts"),
            ("num_experts_per_tok", "chosen"),
            ("sliding_window", "window"),
            ("swiglu_limit", "limit"),
            ("rope_parameters.rope_theta", "theta"),
            ("rope_parameters.factor", "factor"),
            (
                "rope_parameters.original_max_position_embeddings",
                "original_max_len",
            ),
            ("rms_norm_eps", "epsilon"),
        ])
        .value("rope_parameters.rope_type", "yarn")
        .value("rope_parameters.beta_fast", 32.0)
        .value("rope_parameters.beta_slow", 1.0)
        .value("rope_parameters.truncate", false)
        .value("swiglu_alpha", 1.702)
        .value("attention_bias", true)
        .value("tie_word_embeddings", false)
        .optional(["swiglu_alpha"])
}

/// Its files, of a model with experts of this width. The rows of the gates and those of what they are
/// multiplied by alternate in one matrix.
pub fn weights(hidden: usize) -> WeightMap {
    let named = |(ours, theirs): (&str, &str)| Rule::new(ours, theirs);
    let alternating = [
        ("moe.gate_proj.weight", "mlp.experts.gate_up_proj"),
        ("moe.up_proj.weight", "mlp.experts.gate_up_proj"),
        ("moe.gate_proj.bias", "mlp.experts.gate_up_proj_bias"),
        ("moe.up_proj.bias", "mlp.experts.gate_up_proj_bias"),
    ];
    let experts = [
        ("moe.down_proj.weight", "mlp.experts.down_proj"),
        ("moe.down_proj.bias", "mlp.experts.down_proj_bias"),
    ];
    let others = [
        ("rms_norm.*", "input_layernorm.*"),
        ("attention.*", "self_attn.*"),
        ("attention.sink.weight", "self_attn.sinks"),
        ("rms_norm_2.*", "post_attention_layernorm.*"),
        ("moe.router.*", "mlp.router.*"),
    ];
    let alternating = alternating
        .map(named)
        .map(|rule| rule.stacked_in_groups(hidden));
    let experts = alternating.into_iter().chain(experts.map(named));
    let experts = experts.map(|rule| rule.each_expert().transposed());
    let layer = WeightMap::new(experts.chain(others.map(named)));
    let ends = [
        ("embedding.*", "model.embed_tokens.*"),
        ("rms_norm.*", "model.norm.*"),
        ("linear.*", "lm_head.*"),
    ];
    layer
        .under("blocks.{}.", "model.layers.{}.")
        .and(WeightMap::new(ends.map(named)))
        .under("gpt_oss.", "")
        .metadata("format", "pt")
}
