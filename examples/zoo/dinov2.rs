//! DINOv2 with registers (Oquab et al. 2023, Darcet et al. 2023): features of an image and of its patches, with tokens that store what no
//! patch is needed for.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `facebook/dinov2-with-registers-small`: 22 million parameters.
    pub struct Dinov2<
        channels = 3, height = 518, width = 518, patch = 14, d_model = 384, heads = 6, ratio = 4, layers = 12, registers = 4, epsilon = 1e-6,
        patches = { height / patch * (width / patch) }, tokens = { patches + registers + 1 },
    >;

    /// The token of the class, the registers, and the patches. A patch that is masked is read as a learned token.
    fn forward(image: [batch, channels, height, width], masked: bool[batch, patches] = false) -> [batch, tokens, d_model] {
        dinov2::<hidden = { ratio * d_model }, ..>(image, masked)
    }

    /// `Dinov2WithRegistersModel` of `transformers`.
    pub block dinov2(
        image: [batch, c, h, w], masked: bool[batch, p], patch, d_model, heads, hidden, layers, registers, epsilon,
        places = { p + 1 }, tokens = { p + registers + 1 },
    ) -> [batch, tokens, d_model] {
        let x = conv2d::<
            [h, w], d_model, kernel = patch, stride = patch, channels = c, to = [rows, columns], name = projection,
        >(image);
        param mask: [d_model] = 0;
        let x = if masked { mask } else { rearrange::<[batch, p = (rows, columns), d_model]>(x) };
        param class: [1, d_model] = normal(0.02);
        param positions: [places, d_model] = normal(0.02);
        let x = positions + concat::<places>(class, x);
        param register: [registers, d_model] = 0;
        let mut x = concat::<tokens>(x[places = 0..1], register, x[places = 1..]);
        repeat layers {
            param scale1: [d_model] = 1;
            param scale2: [d_model] = 1;
            x += scale1 * attention::<heads>(layer_norm::<epsilon = epsilon>(x));
            x += scale2 * feed_forward::<hidden, activation = gelu>(layer_norm::<epsilon = epsilon>(x));
        }
        layer_norm::<epsilon = epsilon>(x)
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("dinov2_with_registers")
        .constants([
            ("num_channels", "channels"),
            ("image_size", "height"),
            ("image_size", "width"),
            ("patch_size", "patch"),
            ("hidden_size", "d_model"),
            ("num_attention_heads", "heads"),
            ("mlp_ratio", "ratio"),
            ("num_hidden_layers", "layers"),
            ("num_register_tokens", "registers"),
            ("layer_norm_eps", "epsilon"),
        ])
        .value("hidden_act", "gelu")
        .value("qkv_bias", true)
        .value("use_swiglu_ffn", false)
        .optional(["num_channels", "qkv_bias", "use_swiglu_ffn"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let layer = [
        ("attention.q_proj.*", "attention.attention.query.*"),
        ("attention.k_proj.*", "attention.attention.key.*"),
        ("attention.v_proj.*", "attention.attention.value.*"),
        ("attention.o_proj.*", "attention.output.dense.*"),
        ("layer_norm.*", "norm1.*"),
        ("layer_norm_2.*", "norm2.*"),
        ("scale1.weight", "layer_scale1.lambda1"),
        ("scale2.weight", "layer_scale2.lambda1"),
        ("feed_forward.up_proj.*", "mlp.fc1.*"),
        ("feed_forward.down_proj.*", "mlp.fc2.*"),
    ];
    let ends = [
        ("projection.*", "embeddings.patch_embeddings.projection.*"),
        ("layer_norm.*", "layernorm.*"),
    ];
    let tokens = [
        ("class.weight", "embeddings.cls_token"),
        ("mask.weight", "embeddings.mask_token"),
        ("positions.weight", "embeddings.position_embeddings"),
        ("register.weight", "embeddings.register_tokens"),
    ];
    let named = |(ours, theirs)| Rule::new(ours, theirs);
    let tokens = tokens.map(named).map(|rule: Rule| rule.squeezed(0));
    WeightMap::new(layer.map(named))
        .under("blocks.{}.", "encoder.layer.{}.")
        .and(WeightMap::new(ends.map(named).into_iter().chain(tokens)))
        .under("dinov2.", "")
        .metadata("format", "pt")
}
