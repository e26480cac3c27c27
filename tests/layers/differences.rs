//! The gradients of declared layers against central differences of what they put out.

use super::compare::{Outcome, backpropagate, layer_with, state_for};
use attn::attention;
use dfdx::prelude::*;
use support::reference::{State, parameters::scattered};

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct RotatedNormedCapped<heads = 4, kv_heads = 2, d_model = 8, head_dim = 4, mask = causal, position = rope, qk_norm = rms, softcap = 2>;
    struct AlibiSoftmax1<heads = 3, d_model = 9, mask = sliding_window(2), position = alibi, normalizer = softmax1>;
    struct RelativeSigmoid<heads = 2, d_model = 8, mask = prefix_lm(2), position = rel_pos_bias(4, 5), normalizer = sigmoid, bias = [k, v]>;
    struct AdditivePadded<heads = 2, d_model = 8, d_context = 6, mask = padding, score = additive(hidden = 3)>;
    struct BilinearPacked<heads = 2, kv_heads = 1, d_model = 8, mask = document & causal, score = bilinear>;
    struct CosineCross<heads = 2, d_model = 8, d_context = 6, value_head_dim = 3, qk_norm = l2, scale = 5, mask = causal(lower_right)>;
}

/// Step of the differences, along directions of length 1.
///
/// With four points the error of the method is h⁴/30 times the fifth derivative, here some 1e-12 to 1e-10 for derivatives
/// up to 1e5; rounding adds ε |loss| / h, some 1e-13 for losses of order 1 to 10.
const STEP: f64 = 1e-3;

/// Ten times the larger of the two errors above, relative to the gradient (or 1).
const TOLERANCE: f64 = 1e-9;

/// Asserts for each input and parameter that the derivative along an arbitrary direction, and along three axes, is what
/// the gradient says.
fn assert_gradients(state: &State, run: impl Fn(&State) -> Outcome) {
    let gradients = run(state);
    for (name, gradient) in gradients.gradients() {
        let count = gradient.len();
        let mut directions = vec![scattered(&format!("direction of {name}"), count)];
        for axis in [0, count / 2, count - 1] {
            let mut direction = vec![0.0; count];
            direction[axis] = 1.0;
            directions.push(direction);
        }
        for direction in directions {
            let length = direction.iter().map(|v| v * v).sum::<f64>().sqrt();
            let unit: Vec<f64> = direction.iter().map(|v| v / length).collect();
            let said: f64 = gradient.iter().zip(&unit).map(|(g, u)| g * u).sum();

            let loss_at = |steps: f64| {
                let mut moved = state.clone();
                for (value, u) in moved.flat_mut(name).iter_mut().zip(&unit) {
                    *value += steps * STEP * u;
                }
                run(&moved).loss()
            };
            let near = loss_at(1.0) - loss_at(-1.0);
            let far = loss_at(2.0) - loss_at(-2.0);
            let found = (8.0 * near - far) / (12.0 * STEP);
            assert!(
                (said - found).abs() <= TOLERANCE * said.abs().max(1.0),
                "{name}: the gradient says {said}, differences {found}"
            );
        }
    }
}

/// Checks a layer over `[2, 4, d_model]`; further arguments of the call follow.
macro_rules! self_attention {
    ($Layer:ident, $m:literal $(, $data:expr)*) => {{
        let state = state_for::<$Layer<f64>, _>(&[("x", &[2, 4, $m])]);
        assert_gradients(&state, |state| {
            let layer = layer_with::<$Layer<f64>, _>(state);
            let x = state.tensor("x", (2, 4, Const::<$m>));
            #[allow(unused_parens, clippy::double_parens, reason = "a tuple only if there is data")]
            let output = layer.forward((x.leaky_trace() $(, $data)*));
            backpropagate(output).input("x", &x).parameters(&layer)
        });
    }};
}

/// Checks a layer from `[2, 3, d_model]` to `[2, 4, d_context]`; further arguments of the call follow.
macro_rules! cross_attention {
    ($Layer:ident, $m:literal, $c:literal $(, $data:expr)*) => {{
        let state = state_for::<$Layer<f64>, _>(&[("x", &[2, 3, $m]), ("context", &[2, 4, $c])]);
        assert_gradients(&state, |state| {
            let layer = layer_with::<$Layer<f64>, _>(state);
            let x = state.tensor("x", (2, 3, Const::<$m>));
            let context = state.tensor("context", (2, 4, Const::<$c>));
            let output = layer.forward((x.leaky_trace(), context.clone() $(, $data)*));
            backpropagate(output).input("x", &x).input("context", &context).parameters(&layer)
        });
    }};
}

#[test]
fn of_plain_attention() {
    self_attention!(Plain, 8);
}

#[test]
fn of_rotated_normed_and_capped_scores_of_shared_keys() {
    self_attention!(RotatedNormedCapped, 8);
}

#[test]
fn of_linear_biases_under_softmax1() {
    self_attention!(AlibiSoftmax1, 9);
}

#[test]
fn of_relative_biases_under_sigmoid() {
    self_attention!(RelativeSigmoid, 8);
}

#[test]
fn of_additive_scores_with_an_empty_sequence() {
    let lengths: Tensor<_, usize, _> = Cpu::default().tensor_from_vec(vec![3, 0], (2,));
    cross_attention!(AdditivePadded, 8, 6, lengths.clone());
}

#[test]
fn of_bilinear_scores_within_documents() {
    let ids: Tensor<_, usize, _> =
        Cpu::default().tensor_from_vec(vec![1, 1, 0, 0, 5, 6, 6, 5], (2, 4));
    self_attention!(BilinearPacked, 8, ids.clone());
}

#[test]
fn of_cosines_across_sequences_of_different_lengths() {
    cross_attention!(CosineCross, 8, 6);
}
