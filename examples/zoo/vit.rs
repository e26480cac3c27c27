//! A Vision Transformer (Dosovitskiy et al. 2021): patches of an image behind a token for its class.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `google/vit-base-patch16-224`: 87 million parameters.
    pub struct Vit<
        channels = 3, height = 224, width = 224, patch = 16, d_model = 768, heads = 12, hidden = 3072, layers = 12, classes = 1000, epsilon = 1e-12,
    >;

    fn forward(image: [batch, channels, height, width]) -> [batch, classes] {
        vit::<places = { height / patch * (width / patch) + 1 }, ..>(image)
    }

    fn loss(image: [batch, channels, height, width], targets: ids[batch]) -> [] {
        cross_entropy(forward(image), targets)
    }

    /// `ViTForImageClassification` of `transformers`.
    pub block vit(
        image: [batch, c, h, w], patch, places, d_model, heads, hidden, layers, classes, epsilon,
    ) -> [batch, classes] {
        let x = conv2d::<
            [h, w], d_model, kernel = patch, stride = patch, channels = c, to = [rows, columns], name = patches,
        >(image);
        param class: [1, d_model] = normal(0.02);
        param positions: [places, d_model] = normal(0.02);
        let mut x = positions + concat::<places>(class, rearrange::<[batch, (rows, columns), d_model]>(x));
        repeat layers {
            x += attention::<heads>(layer_norm::<epsilon = epsilon>(x));
            x += feed_forward::<hidden, activation = gelu>(layer_norm::<epsilon = epsilon>(x));
        }
        let x = layer_norm::<epsilon = epsilon>(x);
        linear::<classes>(x[places = 0])
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("vit")
        .constants([
            ("num_channels", "channels"),
            ("image_size", "height"),
            ("image_size", "width"),
            ("patch_size", "patch"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("intermediate_size", "hidden"),
            ("num_hidden_layers", "layers"),
            ("layer_norm_eps", "epsilon"),
        ])
        .value("hidden_act", "gelu")
        .value("qkv_bias", true)
        .optional(["num_channels", "image_size", "patch_size", "qkv_bias"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let layer = [
        ("attention.q_proj.*", "attention.attention.query.*"),
        ("attention.k_proj.*", "attention.attention.key.*"),
        ("attention.v_proj.*", "attention.attention.value.*"),
        ("attention.o_proj.*", "attention.output.dense.*"),
        ("layer_norm.*", "layernorm_before.*"),
        ("layer_norm_2.*", "layernorm_after.*"),
        ("feed_forward.up_proj.*", "intermediate.dense.*"),
        ("feed_forward.down_proj.*", "output.dense.*"),
    ];
    let ends = [
        ("patches.*", "vit.embeddings.patch_embeddings.projection.*"),
        ("layer_norm.*", "vit.layernorm.*"),
        ("linear.*", "classifier.*"),
    ];
    let tokens = [
        ("class.weight", "vit.embeddings.cls_token"),
        ("positions.weight", "vit.embeddings.position_embeddings"),
    ];
    let named = |(ours, theirs)| Rule::new(ours, theirs);
    let tokens = tokens.map(named).map(|rule: Rule| rule.squeezed(0));
    WeightMap::new(layer.map(named))
        .under("blocks.{}.", "vit.encoder.layer.{}.")
        .and(WeightMap::new(ends.map(named).into_iter().chain(tokens)))
        .under("vit.", "")
        .metadata("format", "pt")
}
