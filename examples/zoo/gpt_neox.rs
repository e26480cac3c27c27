//! GPT-NeoX and Pythia (Black et al. 2022, Biderman et al. 2023): attention and feed-forward layer read the same value, and positions rotate
//! a part of each head.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `EleutherAI/pythia-70m`: 70 million parameters.
    pub struct GptNeoX<
        vocab = 50304, d_model = 512, heads = 8, hidden = 2048, layers = 6, rotary_pct = 0.25, theta = 10000.0, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt_neox::<rotary = { (rotary_pct * (d_model / heads) as f64) as usize }, ..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `GPTNeoXForCausalLM` of `transformers`.
    pub block gpt_neox(
        tokens: ids[batch, seq], vocab, d_model, heads, hidden, layers, rotary, theta, epsilon,
    ) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            let y = attention::<heads, mask = causal, position = rope(theta, dims = rotary)>(layer_norm::<epsilon = epsilon>(x));
            x += y + feed_forward::<hidden, activation = gelu>(layer_norm::<epsilon = epsilon>(x));
        }
        linear::<vocab, bias = false>(layer_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("gpt_neox")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("layer_norm_eps", "epsilon"),
            ("rope_parameters.partial_rotary_factor", "rotary_pct"),
            ("rope_parameters.rope_theta", "theta"),
        ])
        .value("rope_parameters.rope_type", "default")
        .value("hidden_act", "gelu")
        .value("use_parallel_residual", true)
        .value("attention_bias", true)
        .value("tie_word_embeddings", false)
        .optional(["attention_bias"])
}

/// Its files, of a model with this number of heads: a head has its query, key and value behind each other.
pub fn weights(heads: usize) -> WeightMap {
    let packed = ["q", "k", "v"].map(|name| {
        let ours = format!("blocks.{{}}.attention.{name}_proj.*");
        Rule::new(ours, "gpt_neox.layers.{}.attention.query_key_value.*").stacked_in_groups(heads)
    });
    let named = [
        ("embedding.*", "gpt_neox.embed_in.*"),
        (
            "blocks.{}.attention.o_proj.*",
            "gpt_neox.layers.{}.attention.dense.*",
        ),
        (
            "blocks.{}.layer_norm.*",
            "gpt_neox.layers.{}.input_layernorm.*",
        ),
        (
            "blocks.{}.layer_norm_2.*",
            "gpt_neox.layers.{}.post_attention_layernorm.*",
        ),
        (
            "blocks.{}.feed_forward.up_proj.*",
            "gpt_neox.layers.{}.mlp.dense_h_to_4h.*",
        ),
        (
            "blocks.{}.feed_forward.down_proj.*",
            "gpt_neox.layers.{}.mlp.dense_4h_to_h.*",
        ),
        ("layer_norm.*", "gpt_neox.final_layer_norm.*"),
        ("linear.*", "embed_out.*"),
    ];
    let named = named.map(|(ours, theirs)| Rule::new(ours, theirs));
    // Old versions saved the causal mask and the frequencies.
    WeightMap::new(packed.into_iter().chain(named))
        .under("gpt_neox.", "")
        .ignore("gpt_neox.layers.{}.attention.bias")
        .ignore("gpt_neox.layers.{}.attention.masked_bias")
        .ignore("gpt_neox.layers.{}.attention.rotary_emb.inv_freq")
        .metadata("format", "pt")
}
