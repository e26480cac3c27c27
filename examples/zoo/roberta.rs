//! RoBERTa (Liu et al. 2019): a BERT that predicts masked tokens alone. Its positions are behind two rows for padding.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap, hugging_face_bert},
    model,
};

model! {
    /// `FacebookAI/roberta-base`: 125 million parameters. Padding is at the end.
    pub struct Roberta<
        vocab = 50265, d_model = 768, heads = 12, hidden = 3072, layers = 12, max_len = 514, types = 1, epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq] = true) -> [batch, seq, vocab] {
        roberta::<..>(tokens, keep)
    }

    /// Labels that are `vocab` do not count.
    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }

    /// `RobertaForMaskedLM` of `transformers`.
    pub block roberta(
        tokens: ids[batch, seq], keep: bool[batch, seq], vocab, d_model, heads, hidden, layers, max_len, types, epsilon,
    ) -> [batch, seq, vocab] {
        param token_types: [types, d_model] = normal(0.02);
        let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens) + token_types[types = 0];
        let mut x = layer_norm::<epsilon = epsilon>(x + learned_position::<max_len, d_model, offset = 2>(tokens));
        repeat layers {
            x = layer_norm::<epsilon = epsilon>(x + attention::<heads, mask = padding>(x, padding = keep));
            x = layer_norm::<epsilon = epsilon>(x + feed_forward::<hidden, activation = gelu>(x));
        }
        param bias: [vocab] = 0;
        let y = gelu(linear::<d_model, name = transform>(x));
        linear::<tied = embedding>(layer_norm::<epsilon = epsilon, name = transform_norm>(y)) + bias
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("roberta")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("max_position_embeddings", "max_len"),
            ("type_vocab_size", "types"),
            ("layer_norm_eps", "epsilon"),
        ])
        .value("hidden_act", "gelu")
        .value("pad_token_id", 1)
}

/// Its files.
pub fn weights() -> WeightMap {
    let head = [
        ("transform.*", "dense.*"),
        ("transform_norm.*", "layer_norm.*"),
        ("bias.weight", "bias"),
    ];
    let head = WeightMap::new(head.map(|(ours, theirs)| Rule::new(ours, theirs)));
    head.under("", "lm_head.")
        .tied(
            "lm_head.decoder.weight",
            "roberta.embeddings.word_embeddings.weight",
        )
        .tied("lm_head.decoder.bias", "lm_head.bias")
        .and(hugging_face_bert().under("", "roberta."))
        .under("roberta.", "")
}
