//! Layers of PyTorch.

use super::*;
use attn::{attention, checkpoint::layout::*, model};

attention! {
    struct SelfAttention<heads = 4, d_model = 16>;
    struct WithZero<heads = 4, d_model = 16, normalizer = softmax1>;
    struct Masked<heads = 4, d_model = 16> {
        data keep: bool[q_len, kv_len];
        fn mask(q_idx, kv_idx) { keep[q_idx, kv_idx] }
    }
    struct Biased<heads = 4, d_model = 16> {
        data bias: [q_len, kv_len];
        fn score(score, q_idx, kv_idx) { score + bias[q_idx, kv_idx] }
    }
    struct Padded<heads = 4, d_model = 16, mask = padding>;
    struct Cross<heads = 4, d_model = 16, d_context = 16>;
    struct NoBias<heads = 4, d_model = 16, mask = causal, bias = false>;
    struct Apart<heads = 4, d_model = 16, d_context = 10>;
    struct QueryKeyValue<heads = 4, d_model = 16, d_context = 10, d_values = 6>;
    struct OfOneWidth<heads = 4, d_model = 16, d_context = 16, d_values = 16>;
}

#[test]
fn multihead_attention_computes_the_same() {
    let run = Run::of("mha");
    let layer: SelfAttention = round_trip("mha", &torch_multihead_attention(), &[]);
    let (y, weights) = layer.forward_with_weights(run.floats::<SEQ, 16>("x"));
    run.assert_same("y", &y.as_vec());
    run.assert_same("weights", &weights.as_vec());
}

/// Each argument of the call, as the table of the documentation says.
#[test]
fn masks_of_pairs_and_average_weights_compute_the_same() {
    let run = Run::of("mha");
    let pairs = |name| -> Tensor<(usize, usize), f32, _> {
        Cpu::default().tensor_from_vec(run.numbers(name), (SEQ, SEQ))
    };
    let x: Tensor<(usize, usize, Const<16>), f32, _> =
        Cpu::default().tensor_from_vec(run.numbers("x"), (BATCH, SEQ, Const));
    let layer: Masked = load("mha", &torch_multihead_attention());
    let keep = !pairs("attn_mask").ne(0.0);
    run.assert_same("masked", &layer.forward((x.clone(), keep)).as_vec());
    let layer: Biased = load("mha", &torch_multihead_attention());
    run.assert_same(
        "biased",
        &layer.forward((x.clone(), pairs("bias"))).as_vec(),
    );
    let layer: SelfAttention = load("mha", &torch_multihead_attention());
    let (_, weights) = layer.forward_with_weights(x.clone());
    let average: Tensor<(usize, usize, usize), f32, _> = weights.mean::<_, Axis<1>>();
    run.assert_same("average", &average.as_vec());
    let layer: WithZero = load("mha", &torch_multihead_attention());
    run.assert_same("with_zero", &layer.forward(x).as_vec());
}

#[test]
fn context_and_padding_compute_the_same() {
    let run = Run::of("mha");
    let layer: Cross = round_trip("mha", &torch_multihead_attention(), &[]);
    let input = (run.floats::<SEQ, 16>("x"), run.floats::<5, 16>("context"));
    run.assert_same("cross", &layer.forward(input).as_vec());
    let layer: Padded = round_trip("mha", &torch_multihead_attention(), &[]);
    let input = (run.floats::<SEQ, 16>("x"), lens());
    run.assert_same("padded", &layer.forward(input).as_vec());
}

#[test]
fn biases_may_be_absent_from_both() {
    let run = Run::of("mha_no_bias");
    let layer: NoBias = round_trip("mha_no_bias", &torch_multihead_attention(), &[]);
    run.assert_same("y", &layer.forward(run.floats::<SEQ, 16>("x")).as_vec());
}

#[test]
fn a_context_of_another_width_has_separate_projections() {
    let run = Run::of("mha_apart");
    let layer: Apart = round_trip("mha_apart", &torch_multihead_attention_apart(), &[]);
    let input = (run.floats::<SEQ, 16>("x"), run.floats::<5, 10>("context"));
    run.assert_same("y", &layer.forward(input).as_vec());
}

#[test]
fn keys_and_values_of_their_own_compute_the_same() {
    let run = Run::of("mha_values");
    let layer: QueryKeyValue = round_trip("mha_values", &torch_multihead_attention_apart(), &[]);
    let (query, key) = (run.floats::<SEQ, 16>("x"), run.floats::<5, 10>("context"));
    let (y, weights) = layer.forward_with_weights((query, key, run.floats::<5, 6>("values")));
    run.assert_same("y", &y.as_vec());
    run.assert_same("weights", &weights.as_vec());

    let run = Run::of("mha");
    let layer: OfOneWidth = round_trip("mha", &torch_multihead_attention(), &[]);
    let (query, key) = (run.floats::<SEQ, 16>("x"), run.floats::<5, 16>("context"));
    let input = (query, key, run.floats::<5, 16>("backwards"));
    run.assert_same("apart", &layer.forward(input).as_vec());
}

model! {
    struct PostNorm<heads = 4, d_model = 16, hidden = 24>;

    fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {
        let x = layer_norm(x + attention::<heads, mask = padding>(x, padding = lens));
        layer_norm(x + feed_forward::<hidden, activation = relu>(x))
    }
}

model! {
    struct PreNorm<heads = 4, d_model = 16, hidden = 24>;

    fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> [batch, seq, d_model] {
        let x = x + attention::<heads, mask = padding>(layer_norm(x), padding = lens);
        x + feed_forward::<hidden, activation = gelu>(layer_norm(x))
    }
}

model! {
    struct Encoder<heads = 4, d_model = 16, hidden = 24>;

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let mut x = x;
        repeat 2 {
            x = layer_norm(x + attention::<heads>(x));
            x = layer_norm(x + feed_forward::<hidden, activation = relu>(x));
        }
        layer_norm(x)
    }
}

#[test]
fn encoder_layers_compute_the_same_with_either_order_and_activation() {
    let map = torch_transformer_encoder_layer();
    let run = Run::of("encoder_layer_post_relu");
    let layer: PostNorm = round_trip("encoder_layer_post_relu", &map, &[]);
    let y = layer.forward((run.floats::<SEQ, 16>("x"), lens()));
    run.assert_same("y", &y.as_vec());

    let run = Run::of("encoder_layer_pre_gelu");
    let layer: PreNorm = round_trip("encoder_layer_pre_gelu", &map, &[]);
    let y = layer.forward((run.floats::<SEQ, 16>("x"), lens()));
    run.assert_same("y", &y.as_vec());
}

#[test]
fn a_layer_becomes_all_layers_under_a_prefix() {
    let layers = torch_transformer_encoder_layer().under("blocks.{}.", "layers.{}.");
    let map = layers.and(WeightMap::new([Rule::new("layer_norm.*", "norm.*")]));
    let run = Run::of("encoder");
    let encoder: Encoder = round_trip("encoder", &map, &[]);
    run.assert_same("y", &encoder.forward(run.floats::<SEQ, 16>("x")).as_vec());
}

#[test]
fn a_single_layer_loads_from_a_whole_file() {
    let map = torch_transformer_encoder_layer().under("", "layers.1.");
    let layer: PostNorm = load("encoder", &map);
    let expected = &safetensors::read(&file("encoder"))["layers.1.linear1.weight"].bytes;
    let found = layer.feed_forward.up_proj.weight.as_vec();
    let found: Vec<u8> = found.into_iter().flat_map(f32::to_le_bytes).collect();
    assert!(found == *expected);
}
