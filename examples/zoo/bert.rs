//! BERT (Devlin et al. 2019): an encoder with its norms behind the layers, which predicts masked tokens, and whether two texts follow each
//! other.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap, hugging_face_bert},
    model,
};

model! {
    /// `google-bert/bert-base-uncased`: 110 million parameters.
    pub struct Bert<
        vocab = 30522, d_model = 768, heads = 12, hidden = 3072, layers = 12, max_len = 512, types = 2, epsilon = 1e-12,
    >;

    fn forward(tokens: ids[batch, seq], segments: ids[batch, seq] = 0, keep: bool[batch, seq] = true)
        -> { logits: [batch, seq, vocab], follows: [batch, 2] }
    {
        let { logits, follows } = bert::<..>(tokens, segments, keep);
        { logits, follows }
    }

    /// Labels that are `vocab` do not count.
    fn loss(
        tokens: ids[batch, seq], segments: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq], next: ids[batch],
    ) -> [] {
        let { logits, follows } = forward(tokens, segments, keep);
        cross_entropy::<ignore_index = vocab>(logits, labels) + cross_entropy(follows, next)
    }

    /// `BertForPreTraining` of `transformers`.
    pub block bert(
        tokens: ids[batch, seq], segments: ids[batch, seq], keep: bool[batch, seq],
        vocab, d_model, heads, hidden, layers, max_len, types, epsilon,
    ) -> { logits: [batch, seq, vocab], follows: [batch, 2] } {
        let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens) + embedding::<types, d_model, name = token_types>(segments);
        let mut x = layer_norm::<epsilon = epsilon>(x + learned_position::<max_len, d_model>(tokens));
        repeat layers {
            x = layer_norm::<epsilon = epsilon>(x + attention::<heads, mask = padding>(x, padding = keep));
            x = layer_norm::<epsilon = epsilon>(x + feed_forward::<hidden, activation = gelu>(x));
        }
        let pooled = tanh(linear::<d_model, name = pooler>(x[seq = 0]));
        param bias: [vocab] = 0;
        let y = layer_norm::<epsilon = epsilon, name = transform_norm>(gelu(linear::<d_model, name = transform>(x)));
        { logits: linear::<tied = embedding>(y) + bias, follows: linear::<2, name = follows>(pooled) }
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("bert")
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
}

/// Its files.
pub fn weights() -> WeightMap {
    let heads = [
        ("transform.*", "transform.dense.*"),
        ("transform_norm.*", "transform.LayerNorm.*"),
        ("bias.weight", "bias"),
    ];
    let heads = WeightMap::new(heads.map(|(ours, theirs)| Rule::new(ours, theirs)));
    heads
        .under("", "predictions.")
        .and(WeightMap::new([Rule::new(
            "follows.*",
            "seq_relationship.*",
        )]))
        .under("", "cls.")
        .tied(
            "cls.predictions.decoder.weight",
            "bert.embeddings.word_embeddings.weight",
        )
        .tied("cls.predictions.decoder.bias", "cls.predictions.bias")
        .and(hugging_face_bert().under("", "bert."))
        .under("bert.", "")
}
