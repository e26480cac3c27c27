//! CLIP (Radford et al. 2021): a transformer of texts and one of images, which agree where a text describes an image.

use crate::Config;
use attn::{
    checkpoint::layout::{Rule, WeightMap},
    model,
};

model! {
    /// `openai/clip-vit-base-patch32`: 151 million parameters.
    pub struct Clip<
        vocab = 49408, d_text = 512, text_heads = 8, text_hidden = 2048, text_layers = 12, max_len = 77,
        channels = 3, height = 224, width = 224, patch = 32, d_image = 768, image_heads = 12, image_hidden = 3072, image_layers = 12,
        d_joint = 512, epsilon = 1e-5,
    >;

    /// How near each text is to each image.
    fn forward(tokens: ids[texts, seq], image: [images, channels, height, width]) -> [texts, images] {
        clip::<places = { height / patch * (width / patch) + 1 }, ..>(tokens, image)
    }

    /// The symmetric cross entropy: each text must choose its own image among those of the batch, and each image its own text.
    fn loss(tokens: ids[batch, seq], image: [batch, channels, height, width]) -> [] {
        let logits = forward(tokens, image as [others = batch, channels, height, width]);
        let own = arange::<batch>();
        0.5 * (cross_entropy::<others>(logits, own) + cross_entropy::<batch>(logits, own as [others = batch]))
    }

    /// `CLIPModel` of `transformers`.
    pub block clip(
        tokens: ids[texts, seq], image: [images, c, h, w],
        vocab, d_text, text_heads, text_hidden, text_layers, max_len, patch, places, d_image, image_heads, image_hidden, image_layers, d_joint,
        epsilon,
    ) -> [texts, images] {
        let text = text_tower::<d_model = d_text, heads = text_heads, hidden = text_hidden, layers = text_layers, ..>(tokens);
        let image = image_tower::<d_model = d_image, heads = image_heads, hidden = image_hidden, layers = image_layers, ..>(image);
        param temperature: [] = 2.6592;
        exp(temperature) * einsum::<[texts, images]>(l2_norm(text), l2_norm(image))
    }

    /// A text is what its last token says: that of the end, which is the largest one.
    block text_tower(tokens: ids[texts, seq], vocab, d_model, heads, hidden, layers, max_len, d_joint, epsilon) -> [texts, d_joint] {
        let x = embedding::<vocab, d_model, init = normal(0.02)>(tokens) + learned_position::<max_len, d_model>(tokens);
        let x = layer_norm::<epsilon = epsilon>(encoder::<true, ..>(x));
        let end = argmax::<seq>(float(tokens));
        linear::<d_joint, bias = false>(x[seq = end])
    }

    /// An image is what the token of its class says.
    block image_tower(image: [images, c, h, w], patch, places, d_model, heads, hidden, layers, d_joint, epsilon) -> [images, d_joint] {
        let x = conv2d::<
            [h, w], d_model, kernel = patch, stride = patch, bias = false, channels = c, to = [rows, columns], name = patches,
        >(image);
        param class: [d_model] = normal(0.02);
        param positions: [places, d_model] = normal(0.02);
        let class = rearrange::<[1, d_model]>(class);
        let x = positions + concat::<places>(class, rearrange::<[images, (rows, columns), d_model]>(x));
        let x = encoder::<false, ..>(layer_norm::<epsilon = epsilon>(x));
        linear::<d_joint, bias = false>(layer_norm::<epsilon = epsilon>(x[places = 0]))
    }

    block encoder(x: [batch, seq, n], is_causal, heads, hidden, layers, epsilon) -> [batch, seq, n] {
        let mut x = x;
        repeat layers {
            x += attention::<heads, mask = if is_causal { causal } else { none }>(layer_norm::<epsilon = epsilon>(x));
            let h = linear::<hidden, name = fc1>(layer_norm::<epsilon = epsilon>(x));
            x += linear::<n, name = fc2>(h * sigmoid(1.702 * h));
        }
        x
    }
}

/// The values of its `config.json`.
pub fn config() -> Config {
    Config::new("clip")
        .constants([
            ("text_config.vocab_size", "vocab"),
            ("text_config.hidden_size", "d_text"),
            ("text_config.num_attention_heads", "text_heads"),
            ("text_config.intermediate_size", "text_hidden"),
            ("text_config.num_hidden_layers", "text_layers"),
            ("text_config.max_position_embeddings", "max_len"),
            ("text_config.layer_norm_eps", "epsilon"),
            ("vision_config.num_channels", "channels"),
            ("vision_config.image_size", "height"),
            ("vision_config.image_size", "width"),
            ("vision_config.patch_size", "patch"),
            ("vision_config.hidden_size", "d_image"),
            ("vision_config.num_attention_heads", "image_heads"),
            ("vision_config.intermediate_size", "image_hidden"),
            ("vision_config.num_hidden_layers", "image_layers"),
            ("vision_config.layer_norm_eps", "epsilon"),
            ("projection_dim", "d_joint"),
        ])
        .value("text_config.hidden_act", "quick_gelu")
        .value("vision_config.hidden_act", "quick_gelu")
        .optional(["vision_config.num_channels"])
}

/// Its files.
pub fn weights() -> WeightMap {
    let map = |names: &[(&str, &str)]| {
        WeightMap::new(names.iter().map(|&(ours, theirs)| Rule::new(ours, theirs)))
    };
    let layer = map(&[
        ("attention.*", "self_attn.*"),
        ("attention.o_proj.*", "self_attn.out_proj.*"),
        ("layer_norm.*", "layer_norm1.*"),
        ("layer_norm_2.*", "layer_norm2.*"),
        ("fc1.*", "mlp.fc1.*"),
        ("fc2.*", "mlp.fc2.*"),
    ]);
    let encoder = layer.under("encoder.blocks.{}.", "encoder.layers.{}.");
    let text = encoder.clone().and(map(&[
        ("embedding.*", "embeddings.token_embedding.*"),
        ("learned_position.*", "embeddings.position_embedding.*"),
        ("layer_norm.*", "final_layer_norm.*"),
    ]));
    let image = encoder.and(map(&[
        ("patches.*", "embeddings.patch_embedding.*"),
        ("class.weight", "embeddings.class_embedding"),
        ("positions.weight", "embeddings.position_embedding.weight"),
        // The name has this form in all files.
        ("layer_norm.*", "pre_layrnorm.*"),
        ("layer_norm_2.*", "post_layernorm.*"),
    ]));
    let places = |map: WeightMap| map.ignore("embeddings.position_ids");
    let ends = [
        ("temperature.weight", "logit_scale"),
        ("text_tower.linear.*", "text_projection.*"),
        ("image_tower.linear.*", "visual_projection.*"),
    ];
    places(text)
        .under("text_tower.", "text_model.")
        .and(places(image).under("image_tower.", "vision_model."))
        .and(map(&ends))
        .under("clip.", "")
        .metadata("format", "pt")
}
