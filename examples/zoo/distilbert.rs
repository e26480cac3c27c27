//! DistilBERT (Sanh et al. 2019): a BERT with half of the layers, without segments.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `distilbert/distilbert-base-uncased`: 67 million parameters.
    pub struct DistilBert<vocab = 30522, d_model = 768, heads = 12, hidden = 3072, layers = 6, max_len = 512>;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq] = true) -> [batch, seq, vocab] {
        distilbert::<..>(tokens, keep)
    }

    /// Labels that are `vocab` do not count.
    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }

    /// `DistilBertForMaskedLM` of `transformers`.
    pub block distilbert(
        tokens: ids[batch, seq], keep: bool[batch, seq], vocab, d_model, heads, hidden, layers, max_len,
    ) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens) + learned_position::<max_len, d_model>(tokens);
        let mut x = layer_norm::<epsilon = 1e-12>(x);
        repeat layers {
            x = layer_norm::<epsilon = 1e-12>(x + attention::<heads, mask = padding>(x, padding = keep));
            x = layer_norm::<epsilon = 1e-12>(x + feed_forward::<hidden, activation = gelu>(x));
        }
        param bias: [vocab] = 0;
        let y = layer_norm::<epsilon = 1e-12, name = transform_norm>(gelu(linear::<d_model, name = transform>(x)));
        linear::<tied = embedding>(y) + bias
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("distilbert")
        .constants([
            ("vocab_size", "vocab"),
            ("dim", "d_model"),
            ("n_heads", "heads"),
            ("hidden_dim", "hidden"),
            ("n_layers", "layers"),
            ("max_position_embeddings", "max_len"),
        ])
        .value("activation", "gelu")
        .value("sinusoidal_pos_embds", false)
}

/// Its files.
pub fn weights() -> WeightMap {
    let layer = [
        ("attention.q_proj.*", "attention.q_lin.*"),
        ("attention.k_proj.*", "attention.k_lin.*"),
        ("attention.v_proj.*", "attention.v_lin.*"),
        ("attention.o_proj.*", "attention.out_lin.*"),
        ("layer_norm.*", "sa_layer_norm.*"),
        ("feed_forward.up_proj.*", "ffn.lin1.*"),
        ("feed_forward.down_proj.*", "ffn.lin2.*"),
        ("layer_norm_2.*", "output_layer_norm.*"),
    ];
    let ends = [
        ("embedding.*", "distilbert.embeddings.word_embeddings.*"),
        (
            "learned_position.*",
            "distilbert.embeddings.position_embeddings.*",
        ),
        ("layer_norm.*", "distilbert.embeddings.LayerNorm.*"),
        ("transform.*", "vocab_transform.*"),
        ("transform_norm.*", "vocab_layer_norm.*"),
        ("bias.weight", "vocab_projector.bias"),
    ];
    WeightMap::new(layer.map(|(ours, theirs)| Rule::new(ours, theirs)))
        .under("blocks.{}.", "distilbert.transformer.layer.{}.")
        .and(WeightMap::new(
            ends.map(|(ours, theirs)| Rule::new(ours, theirs)),
        ))
        .under("distilbert.", "")
        .tied(
            "vocab_projector.weight",
            "distilbert.embeddings.word_embeddings.weight",
        )
        .metadata("format", "pt")
}
