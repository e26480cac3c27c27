//! Qwen 3 (Yang et al. 2025) as a mixture of many small experts, with norms of queries and keys.

use crate::{Config, mixtral::files_of_mixture};
use attn::{checkpoint::layout::WeightMap, model};

model! {
    /// `Qwen/Qwen3-30B-A3B`: 31 billion parameters, of which a token reads 3 billion.
    pub struct Qwen3Moe<
        vocab = 151936, d_model = 2048, heads = 32, kv_heads = 4, head_dim = 128, hidden = 768, layers = 48, experts = 128, chosen = 8,
        theta = 1000000.0, epsilon = 1e-6,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        qwen3_moe::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `Qwen3MoeForCausalLM` of `transformers`.
    pub block qwen3_moe(
        tokens: ids[batch, seq], vocab, d_model, heads, kv_heads, head_dim, hidden, layers, experts, chosen, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<
                heads, kv_heads = kv_heads, head_dim = head_dim, mask = causal, position = rope(theta), qk_norm = rms(epsilon = epsilon), bias = false,
            >(rms_norm::<epsilon = epsilon>(x));
            x += moe::<..>(rms_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(rms_norm::<epsilon = epsilon>(x))
    }

    /// The experts that a router prefers, with their shares of the preference.
    block moe(x: [.., n], experts, chosen, hidden) -> [.., n] {
        let chances = softmax(linear::<experts, bias = false, name = gate>(x));
        let (best, ids) = top_k::<experts, k = chosen>(chances);
        let h = silu(grouped_linear::<hidden, experts, bias = false, name = gate_proj>(x, ids));
        let h = h * grouped_linear::<hidden, experts, bias = false, name = up_proj>(x, ids);
        sum::<chosen>(best / sum::<chosen>(best) * grouped_linear::<n, experts, bias = false, name = down_proj>(h, ids))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("qwen3_moe")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("head_dim", "head_dim"),
            ("rms_norm_eps", "epsilon"),
            ("moe_intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("num_local_experts", "experts"),
            ("num_experts_per_tok", "chosen"),
            ("rope_parameters.rope_theta", "theta"),
        ])
        .value("rope_parameters.rope_type", "default")
        .value("hidden_act", "silu")
        .value("norm_topk_prob", true)
        .value("decoder_sparse_step", 1)
        .value("mlp_only_layers", Vec::<usize>::new())
        .value("use_sliding_window", false)
        .value("attention_bias", false)
        .value("tie_word_embeddings", false)
        .optional(["attention_bias", "use_sliding_window"])
}

/// Its files, of a model with this number of experts.
pub fn weights(experts: usize) -> WeightMap {
    let names = ["gate_proj", "down_proj", "up_proj"];
    files_of_mixture(experts, "mlp", names).under("qwen3_moe.", "")
}
