//! OPT (Zhang et al. 2022): learned positions behind two rows for padding, and a ReLU.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `facebook/opt-125m`: 125 million parameters.
    pub struct Opt<vocab = 50272, d_model = 768, heads = 12, hidden = 3072, layers = 12, max_len = 2048>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        opt::<..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `OPTForCausalLM` of `transformers`, with its norms before the layers.
    pub block opt(tokens: ids[batch, seq], vocab, d_model, heads, hidden, layers, max_len) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        x += learned_position::<{ max_len + 2 }, d_model, offset = 2>(tokens);
        repeat layers {
            x += attention::<heads, mask = causal>(layer_norm(x));
            x += feed_forward::<hidden, activation = relu>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("opt")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("word_embed_proj_dim", "d_model"),
            ("num_attention_heads", "heads"),
            ("ffn_dim", "hidden"),
            ("num_hidden_layers", "layers"),
            ("max_position_embeddings", "max_len"),
        ])
        .value("activation_function", "relu")
        .value("do_layer_norm_before", true)
        .value("_remove_final_layer_norm", false)
        .value("enable_bias", true)
        .value("layer_norm_elementwise_affine", true)
        .value("tie_word_embeddings", true)
        .optional([
            "_remove_final_layer_norm",
            "enable_bias",
            "layer_norm_elementwise_affine",
            "tie_word_embeddings",
        ])
}

/// Its files.
pub fn weights() -> WeightMap {
    let named = [
        ("embedding.*", "embed_tokens.*"),
        ("learned_position.*", "embed_positions.*"),
        ("blocks.{}.layer_norm.*", "layers.{}.self_attn_layer_norm.*"),
        ("blocks.{}.attention.*", "layers.{}.self_attn.*"),
        (
            "blocks.{}.attention.o_proj.*",
            "layers.{}.self_attn.out_proj.*",
        ),
        ("blocks.{}.layer_norm_2.*", "layers.{}.final_layer_norm.*"),
        ("blocks.{}.feed_forward.up_proj.*", "layers.{}.fc1.*"),
        ("blocks.{}.feed_forward.down_proj.*", "layers.{}.fc2.*"),
        ("layer_norm.*", "final_layer_norm.*"),
    ];
    WeightMap::new(named.map(|(ours, theirs)| Rule::new(ours, theirs)))
        .under("opt.", "model.decoder.")
        .tied("lm_head.weight", "model.decoder.embed_tokens.weight")
        .metadata("format", "pt")
}
