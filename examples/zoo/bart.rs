//! BART (Lewis et al. 2020): an encoder and a decoder with their norms behind the layers, and positions behind two rows for padding.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `facebook/bart-base`: 139 million parameters.
    pub struct Bart<vocab = 50265, d_model = 768, heads = 12, hidden = 3072, layers = 6, max_len = 1024>;

    fn forward(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        bart::<..>(source, keep, tokens)
    }

    fn loss(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(source, keep, tokens), targets)
    }

    /// `BartForConditionalGeneration` of `transformers`.
    pub block bart(
        source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq], vocab, d_model, heads, hidden, layers, max_len,
    ) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model, init = normal(0.02)>(source);
        let mut memory = layer_norm::<name = norm_source>(x + learned_position::<{ max_len + 2 }, d_model, offset = 2>(source));
        repeat layers, name = encoder {
            memory = layer_norm(memory + attention::<heads, mask = padding>(memory, padding = keep));
            memory = layer_norm(memory + feed_forward::<hidden, activation = gelu>(memory));
        }
        let x = embedding::<tied = embedding>(tokens);
        let mut x = layer_norm::<name = norm_tokens>(x + learned_position::<{ max_len + 2 }, d_model, offset = 2>(tokens));
        repeat layers, name = decoder {
            x = layer_norm(x + attention::<heads, mask = causal>(x));
            x = layer_norm(x + attention::<heads, mask = padding, name = cross>(x, context = memory, padding = keep));
            x = layer_norm(x + feed_forward::<hidden, activation = gelu>(x));
        }
        linear::<tied = embedding>(x)
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("bart")
        .constants([
            ("vocab_size", "vocab"),
            ("d_model", "d_model"),
            ("encoder_attention_heads", "heads"),
            ("decoder_attention_heads", "heads"),
            ("encoder_ffn_dim", "hidden"),
            ("decoder_ffn_dim", "hidden"),
            ("encoder_layers", "layers"),
            ("decoder_layers", "layers"),
            ("max_position_embeddings", "max_len"),
        ])
        .value("activation_function", "gelu")
        .value("scale_embedding", false)
        .value("tie_word_embeddings", true)
        .optional(["scale_embedding", "tie_word_embeddings"])
}

/// The maps of a layer of the encoder, and of one of the decoder.
pub(crate) fn layers() -> [WeightMap; 2] {
    let layer = renamed(&[
        ("attention.*", "self_attn.*"),
        ("attention.o_proj.*", "self_attn.out_proj.*"),
        ("layer_norm.*", "self_attn_layer_norm.*"),
        ("feed_forward.up_proj.*", "fc1.*"),
        ("feed_forward.down_proj.*", "fc2.*"),
    ]);
    let encoder = renamed(&[("layer_norm_2.*", "final_layer_norm.*")]);
    let decoder = renamed(&[
        ("cross.*", "encoder_attn.*"),
        ("cross.o_proj.*", "encoder_attn.out_proj.*"),
        ("layer_norm_2.*", "encoder_attn_layer_norm.*"),
        ("layer_norm_3.*", "final_layer_norm.*"),
    ]);
    [layer.clone().and(encoder), layer.and(decoder)]
}

/// Tensors that have other names in the file.
pub(crate) fn renamed(names: &[(&str, &str)]) -> WeightMap {
    WeightMap::new(names.iter().map(|&(ours, theirs)| Rule::new(ours, theirs)))
}

/// Its files. The constant `final_logits_bias` is 0, and is not written.
pub fn weights() -> WeightMap {
    let [encoder, decoder] = layers();
    let ends = renamed(&[
        ("embedding.*", "shared.*"),
        ("learned_position.*", "encoder.embed_positions.*"),
        ("learned_position_2.*", "decoder.embed_positions.*"),
        ("norm_source.*", "encoder.layernorm_embedding.*"),
        ("norm_tokens.*", "decoder.layernorm_embedding.*"),
    ]);
    encoder
        .under("encoder.{}.", "encoder.layers.{}.")
        .and(decoder.under("decoder.{}.", "decoder.layers.{}."))
        .and(ends)
        .tied("encoder.embed_tokens.weight", "shared.weight")
        .tied("decoder.embed_tokens.weight", "shared.weight")
        .under("bart.", "model.")
        .tied("lm_head.weight", "model.shared.weight")
        .ignore("final_logits_bias")
        .metadata("format", "pt")
}
