//! Queries without keys, extreme scores, and the sum of the weights.

use super::{
    compare::{
        Outcome, assert_close, assert_same, backpropagate, by_hand, flat, layer_with, state_for,
        tolerance,
    },
    mask_of,
};
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Split, State, attention,
    heads::dot,
    masks::causal,
    normalizers::{sigmoid, softmax, softmax1},
    number,
};

attention! {
    struct Padded<heads = 2, d_model = 8, mask = padding>;
    struct PaddedSoftmax1<heads = 2, d_model = 8, mask = padding, normalizer = softmax1>;
    struct PaddedSigmoid<heads = 2, d_model = 8, mask = padding, normalizer = sigmoid>;
    struct PaddedAdditive<heads = 2, d_model = 8, mask = padding, score = additive(hidden = 3)>;
    struct PaddedBilinear<heads = 2, d_model = 8, mask = padding, score = bilinear>;
    struct PaddedEverything<heads = 4, kv_heads = 2, d_model = 8, mask = padding & causal, qk_norm = rms, softcap = 3, position = rel_pos_bias(4, 6)>;
    struct PaddedRope<heads = 2, d_model = 8, mask = padding, position = rope, qk_norm = l2>;
    struct Steep<heads = 2, d_model = 8, mask = causal, scale = 256>;
    struct SteepSoftmax1<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = softmax1>;
    struct SteepSigmoid<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = sigmoid>;
    struct SteepSink<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = sink>;
    struct SteepRelu<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = relu>;
    struct SteepSparsemax<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = sparsemax>;
    struct SteepEntmax<heads = 2, d_model = 8, mask = causal, scale = 256, normalizer = entmax15>;
    struct SteepCapped<heads = 2, d_model = 8, mask = causal, scale = 256, softcap = 20>;
    struct Causal<heads = 2, d_model = 8, mask = causal>;
    struct CausalSoftmax1<heads = 2, d_model = 8, mask = causal, normalizer = softmax1>;
    struct Cross<heads = 2, d_model = 8, d_context = 6>;
}

/// Runs a padded layer over two sequences of three tokens.
macro_rules! padded {
    ($Layer:ident, $E:ty, $lengths:expr) => {{
        let state = state_for::<$Layer<$E>, _>(&[("x", &[2, 3, 8])]);
        let layer = layer_with::<$Layer<$E>, _>(&state);
        let x = state.tensor("x", (2, 3, Const::<8>));
        let lengths = Cpu::default().tensor_from_vec($lengths.to_vec(), (2,));
        let (output, weights) = layer.forward_with_weights((x.leaky_trace(), lengths));
        let ran = backpropagate(output).input("x", &x);
        (state, ran.parameters(&layer).weights(&weights))
    }};
}

/// Asserts that the output is the bias of the output projection, and that only the bias has a gradient.
fn assert_nothing_was_seen((state, outcome): (State, Outcome)) {
    let bias: Vec<f64> = state
        .tensor::<_, f32>("o_proj.bias", (8,))
        .as_vec()
        .iter()
        .map(|&v| v.into())
        .collect();
    for row in outcome.get("output").chunks(8) {
        // The f64 layers have the unrounded bias.
        assert_close("a row of the output", row, &bias, f64::from(f32::EPSILON));
    }
    assert!(outcome.get("weights").iter().all(|&w| w == 0.0));
    for (name, gradient) in outcome.gradients() {
        if name == "o_proj.bias" {
            assert!(gradient.iter().all(|g| g.is_finite() && *g != 0.0));
        } else {
            assert!(gradient.iter().all(|&g| g == 0.0), "{name}: {gradient:?}");
        }
    }
}

#[test]
fn sequences_without_keys_have_the_bias_as_output_and_no_other_gradient() {
    assert_nothing_was_seen(padded!(Padded, f32, [0, 0]));
    assert_nothing_was_seen(padded!(Padded, f64, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedSoftmax1, f32, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedSigmoid, f32, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedAdditive, f32, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedBilinear, f32, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedEverything, f32, [0, 0]));
    assert_nothing_was_seen(padded!(PaddedRope, f32, [0, 0]));
}

/// Asserts this for a sequence without valid keys beside one with two: its rows are the bias, and the gradient of its input is
/// zero.
fn assert_second_sequence_saw_nothing((state, outcome): (State, Outcome)) {
    let (first, second) = outcome.get("output").split_at(3 * 8);
    let bias = &state.get("o_proj.bias").flat;
    for row in second.chunks(8) {
        assert_close("a row of the output", row, bias, f64::from(f32::EPSILON));
    }
    assert!(first.chunks(8).all(|row| row[0] != second[0]));
    let (_, of_second) = outcome.gradient("x").split_at(3 * 8);
    assert!(of_second.iter().all(|&g| g == 0.0));
    for (name, gradient) in outcome.gradients() {
        assert!(
            gradient.iter().all(|g| g.is_finite()),
            "{name}: {gradient:?}"
        );
        assert!(gradient.iter().any(|&g| g != 0.0), "{name} is zero");
    }
}

#[test]
fn sequences_without_keys_do_not_affect_the_others() {
    assert_second_sequence_saw_nothing(padded!(Padded, f32, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(Padded, f64, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(PaddedSoftmax1, f32, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(PaddedSigmoid, f32, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(PaddedAdditive, f32, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(PaddedBilinear, f32, [2, 0]));
    assert_second_sequence_saw_nothing(padded!(PaddedRope, f32, [2, 0]));
}

/// Inputs and projections of small integers, so that the scores are exact, also in `f32`. Then the test compares the normalizers
/// for extreme scores, not the rounding of the scores.
fn steep_state<L: BuildModule<Cpu, E>, E: Dtype>() -> State
where
    Cpu: Device<E>,
{
    let mut state = state_for::<L, E>(&[("x", &[2, 7, 8])]);
    for name in [
        "x",
        "q_proj.weight",
        "q_proj.bias",
        "k_proj.weight",
        "k_proj.bias",
    ] {
        for value in state.flat_mut(name) {
            *value = (3.0 * *value).round();
        }
    }
    state
}

/// Compares both forms of a layer with scores of ±1e4 and more.
macro_rules! both_steep {
    ($($Layer:ident)*) => {$(
        both_steep!($Layer, f32);
        both_steep!($Layer, f64);
    )*};
    ($Layer:ident, $E:ty) => {{
        let state = steep_state::<$Layer<$E>, $E>();
        let layer = layer_with::<$Layer<$E>, _>(&state);
        let x = state.tensor("x", (2, 7, Const::<8>));
        let ran = |output| backpropagate(output).input("x", &x).parameters(&layer);
        let fused = ran(layer.forward(x.leaky_trace()));
        let composed = ran(layer.composed().forward(x.leaky_trace()));
        // If one key has all the weight, the gradient of a score is the difference of equal numbers. Its rounding error is
        // multiplied by the scale, and by queries or keys: 8 products of 3 and 3, and a bias of 3.
        let allowed = 256.0 * 75.0 * tolerance::<$E>();
        assert_same(stringify!($Layer), &fused, &composed, allowed);
    }};
}

/// Compares a layer with scores of ±1e4 and more with a hand-written one.
macro_rules! steep {
    ($Layer:ident, $normalizer:ident) => {{
        steep!($Layer, $normalizer, f32);
        steep!($Layer, $normalizer, f64);
    }};
    ($Layer:ident, $normalizer:ident, $E:ty) => {{
        let state = steep_state::<$Layer<$E>, $E>();
        let layer = layer_with::<$Layer<$E>, _>(&state);
        let x = state.tensor("x", (2, 7, Const::<8>));
        let (output, weights) = layer.forward_with_weights(x.leaky_trace());
        let ran = backpropagate(output).input("x", &x);
        let declared = ran.parameters(&layer).weights(&weights);

        let expected = by_hand::<$E, _, _, _>(&state, |p, x| {
            let mask = mask_of(x, x, |_, q, k| causal(q, k));
            let score = |q, k| {
                let scores: Heads<$E> = dot(q, k) * number::<$E>(256.0);
                let scores_f64 = flat(&scores);
                assert!(
                    scores_f64.iter().any(|&s| s > 1e4) && scores_f64.iter().any(|&s| s < -1e4)
                );
                scores
            };
            attention(p, Split::into_heads(2), x, x, score, |s| {
                $normalizer(s, &mask)
            })
        });
        // The derivative computes a weight as `exp(s - lse)`, where `lse` of these scores is rounded by up to 12,000 epsilons. A gradient
        // that is 0 is a sum over some queries of terms with such an error.
        let of_lse = 8.0 * 1.2e4 * f64::from(<$E>::EPSILON);
        assert_same("steep", &declared, &expected, tolerance::<$E>() + of_lse);
    }};
}

#[test]
fn scores_of_ten_thousand_and_more_do_not_overflow() {
    steep!(Steep, softmax);
    steep!(SteepSoftmax1, softmax1);
    steep!(SteepSigmoid, sigmoid);
    both_steep!(Steep SteepSoftmax1 SteepSigmoid SteepSink SteepRelu SteepSparsemax SteepEntmax SteepCapped);
}

/// The sums of the rows of the weights.
fn row_sums(weights: &[f64], keys: usize) -> Vec<f64> {
    weights.chunks(keys).map(|row| row.iter().sum()).collect()
}

#[test]
fn rows_of_the_weights_sum_to_one() {
    let state = state_for::<Causal<f32>, _>(&[("x", &[2, 7, 8])]);
    let layer = layer_with::<Causal<f32>, _>(&state);
    let (_, weights) = layer.forward_with_weights(state.tensor("x", (2, 7, Const::<8>)));
    let weights: Tensor<(usize, Const<2>, usize, usize), f32, Cpu> = weights;
    assert_eq!(weights.shape().concrete(), [2, 2, 7, 7]);
    let sums = row_sums(&flat(&weights), 7);
    // Seven weights, each rounded once or twice, after a sum of seven exponentials.
    assert_close("sums", &sums, &[1.0; 28], 21.0 * f64::from(f32::EPSILON));

    let x = state
        .tensor("x", (2, 7, Const::<8>))
        .slice((0..1, 0..7, 0..8));
    let x: Tensor<(usize, Const<8>), f32, Cpu> = x.reshape_like(&(7, Const));
    let (_, unbatched) = layer.forward_with_weights(x);
    let unbatched: Tensor<(Const<2>, usize, usize), f32, Cpu> = unbatched;
    assert_eq!(unbatched.as_vec(), weights.as_vec()[..2 * 7 * 7]);
}

#[test]
fn rows_of_the_weights_of_softmax1_sum_to_less_than_one() {
    let state = state_for::<CausalSoftmax1<f32>, _>(&[("x", &[2, 7, 8])]);
    let layer = layer_with::<CausalSoftmax1<f32>, _>(&state);
    let (_, weights) = layer.forward_with_weights(state.tensor("x", (2, 7, Const::<8>)));
    let sums = row_sums(&flat(&weights), 7);
    assert!(sums.iter().all(|sum| 0.0 < *sum && *sum < 1.0), "{sums:?}");
}

#[test]
fn masked_weights_are_exactly_zero() {
    let state = state_for::<Causal<f32>, _>(&[("x", &[2, 7, 8])]);
    let layer = layer_with::<Causal<f32>, _>(&state);
    let (_, weights) = layer.forward_with_weights(state.tensor("x", (2, 7, Const::<8>)));
    for (row, weights) in flat(&weights).chunks(7).enumerate() {
        let query = row % 7;
        assert!(weights[..=query].iter().all(|&w| w > 0.0));
        assert!(weights[query + 1..].iter().all(|&w| w == 0.0));
    }
}

#[test]
fn outputs_without_a_context_are_the_bias() {
    let state = state_for::<Cross<f64>, _>(&[("x", &[2, 3, 8])]);
    let layer = layer_with::<Cross<f64>, _>(&state);
    let x = state.tensor("x", (2, 3, Const::<8>));
    let context: Tensor<_, f64, _> = Cpu::default().zeros_like(&(2, 0, Const::<6>));
    let output = layer.forward((x.clone(), context));
    for row in output.as_vec().chunks(8) {
        assert_eq!(row, state.get("o_proj.bias").flat);
    }
}
