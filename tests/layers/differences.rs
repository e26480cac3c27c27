//! The gradients of declared layers against central differences of their outputs.

use super::compare::{Outcome, backpropagate, layer_with, state_for};
use attn::attention;
use dfdx::prelude::*;
use support::{gradients::assert_gradients_of_state, reference::State};

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct RotatedNormedCapped<heads = 4, kv_heads = 2, d_model = 8, head_dim = 4, mask = causal, position = rope, qk_norm = rms, softcap = 2>;
    struct AlibiSoftmax1<heads = 3, d_model = 9, mask = sliding_window(2), position = alibi, normalizer = softmax1>;
    struct RelativeSigmoid<heads = 2, d_model = 8, mask = prefix_lm(2), position = rel_pos_bias(4, 5), normalizer = sigmoid, bias = [k, v]>;
    struct AdditivePadded<heads = 2, d_model = 8, d_context = 6, mask = padding, score = additive(hidden = 3)>;
    struct BilinearPacked<heads = 2, kv_heads = 1, d_model = 8, mask = document & causal, score = bilinear>;
    struct CosineCross<heads = 2, d_model = 8, d_context = 6, value_head_dim = 3, qk_norm = l2, scale = 5, mask = causal(lower_right)>;
}

/// Asserts it for each input and parameter.
fn assert_gradients(state: &State, run: impl Fn(&State) -> Outcome) {
    assert_gradients_of_state("a layer", state, &run(state), &|state| run(state).loss());
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
fn plain_attention_has_exact_gradients() {
    self_attention!(Plain, 8);
}

#[test]
fn rotated_normed_and_capped_scores_of_shared_keys_have_exact_gradients() {
    self_attention!(RotatedNormedCapped, 8);
}

#[test]
fn linear_biases_under_softmax1_have_exact_gradients() {
    self_attention!(AlibiSoftmax1, 9);
}

#[test]
fn relative_biases_under_sigmoid_have_exact_gradients() {
    self_attention!(RelativeSigmoid, 8);
}

#[test]
fn additive_scores_with_an_empty_sequence_have_exact_gradients() {
    let lengths: Tensor<_, usize, _> = Cpu::default().tensor_from_vec(vec![3, 0], (2,));
    cross_attention!(AdditivePadded, 8, 6, lengths.clone());
}

#[test]
fn bilinear_scores_within_documents_have_exact_gradients() {
    let ids: Tensor<_, usize, _> =
        Cpu::default().tensor_from_vec(vec![1, 1, 0, 0, 5, 6, 6, 5], (2, 4));
    self_attention!(BilinearPacked, 8, ids.clone());
}

#[test]
fn cosines_across_sequences_of_different_lengths_have_exact_gradients() {
    cross_attention!(CosineCross, 8, 6);
}
