//! ModernBERT (Warner et al. 2024): an encoder with rotary positions and gates, and without biases. Two layers of three see a window.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `answerdotai/ModernBERT-base`: 149 million parameters. A query sees `window - 1` tokens on both sides.
    pub struct ModernBert<
        vocab = 50368, d_model = 768, heads = 12, hidden = 1152, layers = 22, window = 65, theta = 160000.0, local_theta = 10000.0,
        epsilon = 1e-5,
    >;

    fn forward(tokens: ids[batch, seq], keep: bool[batch, seq] = true) -> [batch, seq, vocab] {
        modernbert::<..>(tokens, keep)
    }

    /// Labels that are `vocab` do not count.
    fn loss(tokens: ids[batch, seq], keep: bool[batch, seq], labels: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens, keep), labels)
    }

    /// `ModernBertForMaskedLM` of `transformers`.
    pub block modernbert(
        tokens: ids[batch, seq], keep: bool[batch, seq], vocab, d_model, heads, hidden, layers, window, theta, local_theta, epsilon,
    ) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens);
        let x = layer_norm::<epsilon = epsilon, bias = false>(x);
        let mut x = layer::<false, false, .., name = first>(x, keep);
        repeat { layers - 1 } as i {
            x = if i % 3 == 2 { layer::<false, true, ..>(x, keep) } else { layer::<true, true, theta = local_theta, ..>(x, keep) };
        }
        let x = layer_norm::<epsilon = epsilon, bias = false, name = final_norm>(x);
        let x = gelu(linear::<d_model, bias = false, name = dense>(x));
        param bias: [vocab] = 0;
        linear::<tied = embedding>(layer_norm::<epsilon = epsilon, bias = false, name = head_norm>(x)) + bias
    }

    block layer(x: [batch, seq, n], keep: bool[batch, seq], is_local, has_norm, heads, hidden, window, theta, epsilon) -> [batch, seq, n] {
        let y = if has_norm { layer_norm::<epsilon = epsilon, bias = false, name = attn_norm>(x) } else { x };
        let x = x + attention::<
            heads, mask = if is_local { sliding_window(window, symmetric) & padding } else { padding }, position = rope(theta), bias = false,
        >(y, padding = keep);
        x + feed_forward::<hidden, activation = geglu>(layer_norm::<epsilon = epsilon, bias = false, name = mlp_norm>(x))
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("modernbert")
        .constants([
            ("vocab_size", "vocab"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("norm_eps", "epsilon"),
            ("rope_parameters.full_attention.rope_theta", "theta"),
            (
                "rope_parameters.sliding_attention.rope_theta",
                "local_theta",
            ),
        ])
        .computed(
            "local_attention",
            "window",
            |window| 2.0 * (window - 1.0),
            |width| width / 2.0 + 1.0,
        )
        .value("rope_parameters.full_attention.rope_type", "default")
        .value("rope_parameters.sliding_attention.rope_type", "default")
        .value("global_attn_every_n_layers", 3)
        .value("hidden_activation", "gelu")
        .value("classifier_activation", "gelu")
        .value("classifier_bias", false)
        .value("attention_bias", false)
        .value("mlp_bias", false)
        .value("norm_bias", false)
        .value("decoder_bias", true)
        .value("tie_word_embeddings", true)
        .optional(["global_attn_every_n_layers", "tie_word_embeddings"])
}

/// Its files, of a model with this number of layers. The loop begins behind the first one.
pub fn weights(layers: usize) -> WeightMap {
    let stacked = [
        ("attention.q_proj.*", "attn.Wqkv.*"),
        ("attention.k_proj.*", "attn.Wqkv.*"),
        ("attention.v_proj.*", "attn.Wqkv.*"),
        ("feed_forward.gate_proj.*", "mlp.Wi.*"),
        ("feed_forward.up_proj.*", "mlp.Wi.*"),
    ];
    let named = [
        ("attention.o_proj.*", "attn.Wo.*"),
        ("feed_forward.down_proj.*", "mlp.Wo.*"),
        ("mlp_norm.*", "mlp_norm.*"),
    ];
    let ends = [
        ("embedding.*", "model.embeddings.tok_embeddings.*"),
        ("layer_norm.*", "model.embeddings.norm.*"),
        ("final_norm.*", "model.final_norm.*"),
        ("dense.*", "head.dense.*"),
        ("head_norm.*", "head.norm.*"),
        ("bias.weight", "decoder.bias"),
    ];
    let rule = |(ours, theirs)| Rule::new(ours, theirs);
    let stacked = stacked.map(rule).map(|rule: Rule| rule.stacked());
    // The first layer has none.
    let norm = Rule::new("attn_norm.*", "attn_norm.*").optional();
    let layer = WeightMap::new(stacked.into_iter().chain(named.map(rule)).chain([norm]));
    let layers = (0..layers).map(|index| {
        let ours = match index.checked_sub(1) {
            None => "first.".into(),
            Some(index) => format!("blocks.{index}.layer."),
        };
        layer
            .clone()
            .under(&ours, &format!("model.layers.{index}."))
    });
    layers
        .fold(WeightMap::new(ends.map(rule)), WeightMap::and)
        .tied("decoder.weight", "model.embeddings.tok_embeddings.weight")
        .under("modernbert.", "")
        .metadata("format", "pt")
}
