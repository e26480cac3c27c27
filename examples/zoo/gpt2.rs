//! GPT-2 (Radford et al. 2019): learned positions, norms before the layers, a GELU by `tanh`, a head that is tied to the embedding.

use crate::Config;
use attn::{
    checkpoint::layout::{WeightMap, hugging_face_gpt2_model},
    model,
};

model! {
    /// `openai-community/gpt2`: 124 million parameters.
    pub struct Gpt2<vocab = 50257, d_model = 768, heads = 12, layers = 12, max_len = 1024, epsilon = 1e-5>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        gpt2::<hidden = { 4 * d_model }, ..>(tokens)
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }

    /// `GPT2LMHeadModel` of `transformers`.
    pub block gpt2(tokens: ids[batch, seq], vocab, d_model, heads, layers, hidden, max_len, epsilon = 1e-5) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        x += learned_position::<max_len, d_model, init = normal(0.02)>(tokens);
        repeat layers {
            x += attention::<heads, mask = causal>(layer_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = gelu_tanh>(layer_norm::<epsilon = epsilon>(x));
        }
        linear::<tied = embedding>(layer_norm::<epsilon = epsilon>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("gpt2")
        .constants([
            ("vocab_size", "vocab"),
            ("n_embd", "d_model"),
            ("n_head", "heads"),
            ("n_layer", "layers"),
            ("n_positions", "max_len"),
            ("layer_norm_epsilon", "epsilon"),
        ])
        .value("activation_function", "gelu_new")
        .value("scale_attn_weights", true)
        .value("scale_attn_by_inverse_layer_idx", false)
        .value("tie_word_embeddings", true)
        .optional([
            "scale_attn_weights",
            "scale_attn_by_inverse_layer_idx",
            "tie_word_embeddings",
        ])
}

/// Its files. `openai-community/gpt2` has no prefix, and what `GPT2LMHeadModel` saves has `transformer.`
pub fn weights(prefix: &str) -> WeightMap {
    let head = format!("{prefix}wte.weight");
    hugging_face_gpt2_model()
        .under("gpt2.", prefix)
        .tied("lm_head.weight", head)
}
