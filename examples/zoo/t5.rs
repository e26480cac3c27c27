//! T5 1.1 and Flan-T5 (Raffel et al. 2020, Chung et al. 2022): an encoder and a decoder, whose layers share the biases of relative positions.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `google/flan-t5-small`: 77 million parameters.
    pub struct T5<
        vocab = 32128, d_model = 512, heads = 6, head_dim = 64, hidden = 1024, layers = 8, buckets = 32, max_distance = 128, epsilon = 1e-6,
    >;

    fn forward(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        t5::<..>(source, keep, tokens)
    }

    fn loss(source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(source, keep, tokens), targets)
    }

    /// `T5ForConditionalGeneration` of `transformers`, with gates and a head of its own.
    pub block t5(
        source: ids[batch, src], keep: bool[batch, src], tokens: ids[batch, seq],
        vocab, d_model, heads, head_dim, hidden, layers, buckets, max_distance, epsilon,
    ) -> [batch, seq, vocab] {
        let memory = encoder::<reach = max_distance, ..>(embedding::<vocab, d_model>(source), keep);
        let x = decoder::<reach = max_distance, ..>(embedding::<tied = embedding>(tokens), memory, keep);
        linear::<vocab, bias = false>(x)
    }

    block encoder(
        x: [batch, src, n], keep: bool[batch, src], heads, head_dim, hidden, layers, buckets, reach, epsilon, span = { 2 * reach + 1 },
    ) -> [batch, src, n] {
        param table: [buckets, heads] = normal(0.02);
        // Half of the buckets are for keys behind the query. Half of these are for single distances, and the others grow.
        buffer of_bucket: [span, buckets] = |i, bucket| if bucket == (if i > reach { buckets / 2 } else { 0 }) + (
            if abs(i - reach) < buckets / 4 { abs(i - reach) } else {
                min(floor(buckets / 4 * (1 + ln(abs(i - reach) / buckets * 4) / ln(reach / buckets * 4))), buckets / 2 - 1)
            }
        ) { 1 } else { 0 };
        let biases = einsum::<[span, heads]>(of_bucket, table);
        let mut x = x;
        repeat layers {
            let y = rms_norm::<epsilon = epsilon>(x);
            x += attention::<heads, head_dim = head_dim, scale = 1, mask = padding, bias = false>(y, padding = keep, biases = biases) {
                data biases: [span, heads];
                fn score(score, h, q_idx, kv_idx) { score + biases[clamp(kv_idx - q_idx + reach, 0, span - 1), h] }
            };
            x += feed_forward::<hidden, activation = geglu_tanh>(rms_norm::<epsilon = epsilon>(x));
        }
        rms_norm::<epsilon = epsilon>(x)
    }

    block decoder(
        x: [batch, seq, n], memory: [batch, src, n], keep: bool[batch, src],
        heads, head_dim, hidden, layers, buckets, reach, epsilon, span = { reach + 1 },
    ) -> [batch, seq, n] {
        param table: [buckets, heads] = normal(0.02);
        buffer of_bucket: [span, buckets] = |i, bucket| if bucket == (
            if i < buckets / 2 { i } else { min(floor(buckets / 2 * (1 + ln(i / buckets * 2) / ln(reach / buckets * 2))), buckets - 1) }
        ) { 1 } else { 0 };
        let biases = einsum::<[span, heads]>(of_bucket, table);
        let mut x = x;
        repeat layers {
            let y = rms_norm::<epsilon = epsilon>(x);
            x += attention::<heads, head_dim = head_dim, scale = 1, mask = causal, bias = false>(y, biases = biases) {
                data biases: [span, heads];
                fn score(score, h, q_idx, kv_idx) { score + biases[clamp(q_idx - kv_idx, 0, reach), h] }
            };
            let y = rms_norm::<epsilon = epsilon>(x);
            x += attention::<heads, head_dim = head_dim, scale = 1, mask = padding, bias = false, name = cross>(y, context = memory, padding = keep);
            x += feed_forward::<hidden, activation = geglu_tanh>(rms_norm::<epsilon = epsilon>(x));
        }
        rms_norm::<epsilon = epsilon>(x)
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("t5")
        .constants([
            ("vocab_size", "vocab"),
            ("d_model", "d_model"),
            ("num_heads", "heads"),
            ("d_kv", "head_dim"),
            ("d_ff", "hidden"),
            ("num_layers", "layers"),
            ("num_decoder_layers", "layers"),
            ("relative_attention_num_buckets", "buckets"),
            ("relative_attention_max_distance", "max_distance"),
            ("layer_norm_epsilon", "epsilon"),
        ])
        .value("feed_forward_proj", "gated-gelu")
        .value("scale_decoder_outputs", false)
        .optional(["relative_attention_max_distance"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let named = |(ours, theirs): (String, String)| Rule::new(ours, theirs);
    let attention = |ours: &str, theirs: &str| {
        ["q", "k", "v", "o"].map(|name| {
            named((
                format!("{ours}.{name}_proj.*"),
                format!("{theirs}.{name}.*"),
            ))
        })
    };
    let layer = |feed_forward: usize| {
        let of = [
            ("gate_proj", "wi_0"),
            ("up_proj", "wi_1"),
            ("down_proj", "wo"),
        ];
        let of = of.map(|(ours, theirs)| {
            let theirs = format!("layer.{feed_forward}.DenseReluDense.{theirs}.*");
            named((format!("feed_forward.{ours}.*"), theirs))
        });
        let norms = ["rms_norm.*", "rms_norm_2.*", "rms_norm_3.*"]
            .into_iter()
            .take(feed_forward + 1);
        let norms = norms
            .enumerate()
            .map(|(at, ours)| named((ours.into(), format!("layer.{at}.layer_norm.*"))));
        WeightMap::new(
            of.into_iter()
                .chain(norms)
                .chain(attention("attention", "layer.0.SelfAttention")),
        )
    };
    let stack = |layer: WeightMap| {
        let biases = "block.0.layer.0.SelfAttention.relative_attention_bias.weight";
        layer.under("blocks.{}.", "block.{}.").and(WeightMap::new([
            Rule::new("table.weight", biases),
            Rule::new("rms_norm.*", "final_layer_norm.*"),
        ]))
    };
    let decoder = layer(2).and(WeightMap::new(attention(
        "cross",
        "layer.1.EncDecAttention",
    )));
    let ends = [("embedding.*", "shared.*"), ("linear.*", "lm_head.*")];
    stack(layer(1))
        .under("encoder.", "encoder.")
        .and(stack(decoder).under("decoder.", "decoder."))
        .and(WeightMap::new(
            ends.map(|(ours, theirs)| Rule::new(ours, theirs)),
        ))
        .tied("encoder.embed_tokens.weight", "shared.weight")
        .tied("decoder.embed_tokens.weight", "shared.weight")
        .under("t5.", "")
        .metadata("format", "pt")
}
