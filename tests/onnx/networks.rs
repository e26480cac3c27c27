//! Whole networks, each at several sizes from one file.

use attn::{dfdx::prelude::*, model};
use support::{
    cases::{ids, lens_up_to, scatter, tensor},
    onnx::Calls,
};

model! {
    struct Gpt<d = 16>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, 11] {
        let mut x = embedding::<11, d>(tokens);
        repeat 2 {
            x += attention::<heads = 4, kv_heads = 2, mask = causal, position = rope, softcap = 5.0>(rms_norm(x));
            x += feed_forward::<hidden = 24, activation = swiglu>(rms_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    fn embed(tokens: ids[batch, seq]) -> [batch, d] {
        mean_pool(embedding::<tied = embedding>(tokens))
    }
}

#[test]
fn a_gpt_has_grouped_heads_rotations_and_a_tied_table() {
    let mut model = Cpu::default().build_module::<Gpt, f32>();
    scatter(&mut model);
    let mut calls = Calls::default().named(["tokens"], ["output"]);
    for (batch, seq) in [(2, 5), (1, 1), (3, 17)] {
        let tokens = ids((batch, seq), 11);
        calls = calls.call(&[&tokens], &model.forward(tokens.clone()));
    }
    calls.check(|path| model.export_onnx(path));
}

#[test]
fn another_function_has_a_file_of_its_own() {
    let mut model = Cpu::default().build_module::<Gpt, f32>();
    scatter(&mut model);
    let tokens = ids((2, 3), 11);
    let calls = Calls::default().call(&[&tokens], &model.embed(tokens.clone()));
    calls.check(|path| model.embed_export_onnx(path));
}

/// ONNX has the epsilon of a norm in `f32`.
#[test]
fn a_gpt_in_f64_has_the_accuracy_of_f64() {
    let mut model = Cpu::default().build_module::<Gpt, f64>();
    scatter(&mut model);
    let tokens = ids((2, 5), 11);
    let calls = Calls::within(1e-8).call(&[&tokens], &model.forward(tokens.clone()));
    calls.check(|path| model.export_onnx(path));
}

model! {
    struct Translator<d = 16, vocab = 13>;

    fn forward(source: ids[batch, src], lens: lens[batch], tokens: ids[batch, seq]) -> { logits: [batch, seq, vocab], memory: [batch, src, d] } {
        let mut memory = embedding::<vocab, d>(source) + sinusoidal_position::<d>(source);
        repeat 2, name = encoder {
            memory = layer_norm(memory + attention::<heads = 2, mask = padding>(memory, padding = lens));
            memory = layer_norm(memory + feed_forward::<hidden = 24, activation = gelu>(memory));
        }
        let mut y = embedding::<tied = embedding>(tokens) + learned_position::<20, d>(tokens);
        repeat 2, name = decoder {
            y = layer_norm(y + attention::<heads = 2, mask = causal, position = alibi>(y));
            y = layer_norm(y + attention::<heads = 4, mask = padding, name = cross>(y, context = memory, padding = lens));
            y = layer_norm(y + feed_forward::<hidden = 24, activation = gelu_tanh>(y));
        }
        { logits: linear::<tied = embedding>(y), memory }
    }
}

#[test]
fn an_encoder_and_a_decoder_see_no_padding() {
    let mut model = Cpu::default().build_module::<Translator, f32>();
    scatter(&mut model);
    let mut calls = Calls::default().named(["source", "lens", "tokens"], ["logits", "memory"]);
    for (batch, src, seq) in [(3, 5, 4), (1, 1, 1), (2, 9, 7)] {
        let source = ids((batch, src), 13);
        let lens = lens_up_to(batch, src);
        let tokens = ids((batch, seq), 13);
        let TranslatorOutput { logits, memory } =
            model.forward((source.clone(), lens.clone(), tokens.clone()));
        calls = calls.call(&[&source, &lens, &tokens], &(logits, memory));
    }
    calls.check(|path| model.export_onnx(path));
}

const CHANNELS: usize = 3;

model! {
    /// A size that only rustc knows.
    struct Images<d = 16, channels = CHANNELS, patch = 2>;

    fn forward(image: [batch, channels, height, width]) -> [batch, 5] {
        let x = conv2d::<[height, width], d, kernel = patch, stride = patch, channels = channels, to = [rows, columns]>(image);
        let x = gelu(conv2d::<[rows, columns], d, kernel = 3, padding = 1, groups = 4, channels = d>(x));
        let mut x = rearrange::<[batch, places = (rows, columns), d]>(x);
        repeat 2 {
            x += attention::<heads = 2, normalizer = softmax1>(layer_norm(x));
            x += feed_forward::<hidden = 24>(layer_norm(x));
        }
        linear::<5>(mean_pool(x))
    }
}

#[test]
fn patches_of_images_of_any_size_attend() {
    let mut model = Cpu::default().build_module::<Images, f32>();
    scatter(&mut model);
    let mut calls = Calls::default();
    for (batch, height, width) in [(2, 6, 4), (1, 2, 2), (3, 5, 7)] {
        let image = tensor::<_, f32>("image", (batch, Const::<3>, height, width));
        calls = calls.call(&[&image], &model.forward(image.clone()));
    }
    calls.check(|path| model.export_onnx(path));
}

model! {
    struct Bodies<d = 8>;

    fn forward(x: [batch, seq, d], place: ids[batch, seq], weight: [batch, seq]) -> [batch, seq, d] {
        let x = x + attention::<2, mask = sliding_window(3) | prefix_lm(2)>(x, place = place, weight = weight) {
            data place: ids[batch, kv_len];
            data weight: [batch, q_len];
            param distance: [7, heads] = normal(0.5);
            fn mask(b, q_idx, kv_idx) { place[b, kv_idx] != 1 || q_idx == kv_idx }
            fn score(score, b, h, q_idx, kv_idx) {
                let far = min(abs(q_idx - kv_idx), 6);
                let near = if q_idx > 0 && far % 2 == 1 { tanh(score * weight[b, max(q_idx - 1, 0)]) } else { score / 2.0 };
                near + distance[far, h] + 0.1 * (far as f32)
            }
        };
        let x = x + attention::<2, score = additive(6), mask = dilated_sliding_window(2, dilation = 2), name = additive>(x);
        let x = x + attention::<2, score = bilinear, mask = chunked(3), qk_norm = l2, normalizer = sink, name = bilinear>(x);
        x + attention::<2, position = rel_pos_bias(8, max_distance = 6), bidirectional = true, mask = !causal, qk_norm = rms, normalizer = sigmoid, name = biased>(x)
    }
}

#[test]
fn masks_and_scores_are_expressions_of_places_and_data() {
    let mut model = Cpu::default().build_module::<Bodies, f32>();
    scatter(&mut model);
    let mut calls = Calls::default();
    for (batch, seq) in [(2, 5), (1, 1), (3, 12)] {
        let x = tensor::<_, f32>("x", (batch, seq, Const::<8>));
        let place = ids((batch, seq), 3);
        let weight = tensor::<_, f32>("weight", (batch, seq));
        let y = model.forward((x.clone(), place.clone(), weight.clone()));
        calls = calls.call(&[&x, &place, &weight], &y);
    }
    calls.check(|path| model.export_onnx(path));
}

model! {
    struct Weights<d = 8>;

    fn forward(x: [batch, seq, d], lens: lens[batch]) -> { weights: [batch, 2, seq, seq], lse: [batch, 2, seq], one: [batch, 2, seq] } {
        let y = attention::<2, talking_heads = both, name = talking>(x);
        let (_y, weights, lse) = attention::<2, mask = padding>(y, padding = lens);
        let (_z, _w, one) = attention::<2, mask = padding, normalizer = softmax1, name = other>(x, padding = lens);
        { weights, lse, one }
    }
}

#[test]
fn the_weights_of_an_attention_are_results() {
    let mut model = Cpu::default().build_module::<Weights, f32>();
    scatter(&mut model);
    let mut calls = Calls::default();
    for (batch, seq) in [(3, 5), (1, 1)] {
        let x = tensor::<_, f32>("x", (batch, seq, Const::<8>));
        let lens = lens_up_to(batch, seq);
        let WeightsOutput { weights, lse, one } = model.forward((x.clone(), lens.clone()));
        calls = calls.call(&[&x, &lens], &(weights, lse, one));
    }
    calls.check(|path| model.export_onnx(path));
}
