//! Whisper (Radford et al. 2022): an encoder of spectrograms behind two convolutions, and a decoder of texts.

use crate::{Config, bart};
use attn::{checkpoint::layout::WeightMap, model};

model! {
    /// `openai/whisper-tiny`: 38 million parameters. A spectrogram has 30 seconds.
    pub struct Whisper<
        vocab = 51865, mels = 80, frames = 3000, places = 1500, d_model = 384, heads = 6, hidden = 1536, layers = 4, max_len = 448,
    >;

    fn forward(mel: [batch, mels, frames], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        whisper::<..>(mel, tokens)
    }

    fn loss(mel: [batch, mels, frames], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(mel, tokens), targets)
    }

    /// `WhisperForConditionalGeneration` of `transformers`.
    pub block whisper(
        mel: [batch, m, f], tokens: ids[batch, seq], vocab, places, d_model, heads, hidden, layers, max_len,
    ) -> [batch, seq, vocab] {
        let x = gelu(conv1d::<f, d_model, kernel = 3, padding = 1, channels = m, name = conv1>(mel));
        let x = gelu(conv1d::<f, d_model, kernel = 3, stride = 2, padding = 1, channels = d_model, to = places, name = conv2>(x));
        // Sines and cosines, which are not trained.
        param positions: [places, d_model] = normal(0.02);
        let mut memory = permute::<[batch, places, d_model]>(x) + detach(positions);
        repeat layers, name = encoder {
            memory += attention::<heads, bias = [q, v, o]>(layer_norm(memory));
            memory += feed_forward::<hidden, activation = gelu>(layer_norm(memory));
        }
        let memory = layer_norm::<name = encoder_norm>(memory);
        let mut x = embedding::<vocab, d_model, init = normal(0.02)>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers, name = decoder {
            x += attention::<heads, mask = causal, bias = [q, v, o]>(layer_norm(x));
            x += attention::<heads, bias = [q, v, o], name = cross>(layer_norm(x), context = memory);
            x += feed_forward::<hidden, activation = gelu>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm::<name = decoder_norm>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("whisper")
        .constants([
            ("vocab_size", "vocab"),
            ("num_mel_bins", "mels"),
            ("max_source_positions", "places"),
            ("d_model", "d_model"),
            ("encoder_attention_heads", "heads"),
            ("decoder_attention_heads", "heads"),
            ("encoder_ffn_dim", "hidden"),
            ("decoder_ffn_dim", "hidden"),
            ("encoder_layers", "layers"),
            ("decoder_layers", "layers"),
            ("max_target_positions", "max_len"),
        ])
        .value("activation_function", "gelu")
        .value("scale_embedding", false)
        .value("tie_word_embeddings", true)
        .optional(["scale_embedding", "tie_word_embeddings"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let [encoder, decoder] = bart::layers();
    let ends = bart::renamed(&[
        ("conv1.*", "encoder.conv1.*"),
        ("conv2.*", "encoder.conv2.*"),
        ("positions.weight", "encoder.embed_positions.weight"),
        ("encoder_norm.*", "encoder.layer_norm.*"),
        ("embedding.*", "decoder.embed_tokens.*"),
        ("learned_position.*", "decoder.embed_positions.*"),
        ("decoder_norm.*", "decoder.layer_norm.*"),
    ]);
    encoder
        .under("encoder.{}.", "encoder.layers.{}.")
        .and(decoder.under("decoder.{}.", "decoder.layers.{}."))
        .and(ends)
        .under("whisper.", "model.")
        .tied("proj_out.weight", "model.decoder.embed_tokens.weight")
        .metadata("format", "pt")
}
