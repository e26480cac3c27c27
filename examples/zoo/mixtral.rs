//! Mixtral (Jiang et al. 2024): a Mistral whose feed-forward layers are mixtures of experts.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `mistralai/Mixtral-8x7B-v0.1`: 47 billion parameters, of which a token reads 13 billion.
    pub struct Mixtral<
        vocab = 32000, d_model = 4096, heads = 32, kv_heads = 8, hidden = 14336, layers = 32, experts = 8, chosen = 2,
        theta = 1000000.0, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        mixtral::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `MixtralForCausalLM` of `transformers`.
    pub block mixtral(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, hidden, layers, experts, chosen, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<heads, kv_heads = kv_heads, mask = causal, position = rope(theta), bias = false>(
                rms_norm::<epsilon = epsilon>(x),
            );
            x += moe::<..>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }

    /// The experts that a router prefers, with their shares of the preference.
    block moe(x: [.., n], experts, chosen, hidden) -> [.., n] {
        let chances = softmax(linear::<experts, bias = false, name = gate>(x));
        let (best, ids) = top_k::<experts, k = chosen>(chances);
        let h = silu(grouped_linear::<hidden, experts, bias = false, name = w1>(x, ids));
        let h = h * grouped_linear::<hidden, experts, bias = false, name = w3>(x, ids);
        sum::<chosen>(best / sum::<chosen>(best) * grouped_linear::<n, experts, bias = false, name = w2>(h, ids))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::llama("mixtral")
        .constants([
            ("num_local_experts", "experts"),
            ("num_experts_per_tok", "chosen"),
            ("rms_norm_eps", "epsilon"),
        ])
        .value("rope_parameters.rope_type", "default")
        .value("sliding_window", ())
        .value("tie_word_embeddings", false)
        .optional(["sliding_window"])
        .or("num_key_value_heads", 8)
        .or("rms_norm_eps", 1e-5)
        .or("rope_parameters.rope_theta", 1000000.0)
}

/// Its files, of a model with this number of experts.
pub fn weights(experts: usize) -> WeightMap {
    let names = ["w1", "w2", "w3"];
    files_of_mixture(experts, "block_sparse_moe", names).under("mixtral.", "")
}

/// The files of a mixture whose layers have a module with a gate and experts, by its name there. The matrices of experts have the same names here.
pub(crate) fn files_of_mixture(experts: usize, module: &str, names: [&str; 3]) -> WeightMap {
    let of_experts = names.map(|name| {
        let theirs = format!("{module}.experts.{{expert}}.{name}.*");
        Rule::new(format!("moe.{name}.*"), theirs).per_expert(experts)
    });
    let gate = Rule::new("moe.gate.*", format!("{module}.gate.*"));
    let layer = [
        ("attention.*", "self_attn.*"),
        ("rms_norm.*", "input_layernorm.*"),
        ("rms_norm_2.*", "post_attention_layernorm.*"),
    ];
    let ends = [
        ("embedding.*", "model.embed_tokens.*"),
        ("rms_norm.*", "model.norm.*"),
        ("linear.*", "lm_head.*"),
    ];
    let named = |(ours, theirs)| Rule::new(ours, theirs);
    let rules = of_experts.into_iter().chain([gate]);
    WeightMap::new(rules.chain(layer.map(named)))
        .under("blocks.{}.", "model.layers.{}.")
        .and(WeightMap::new(ends.map(named)))
        .metadata("format", "pt")
}
