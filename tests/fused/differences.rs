//! The fused gradients against central differences of what the fused lowering puts out, over more than one tile.

use super::{
    compare::Outcome,
    subject::{Case, Sizes, Subject, Way},
};
use support::reference::parameters::scattered;

/// Step of the differences, along directions of length 1.
///
/// With four points the error of the method is h⁴/30 times the fifth derivative, here some 1e-12 to 1e-10 for derivatives
/// up to 1e5; rounding adds ε |loss| / h, some 1e-12 for losses of up to 30.
const STEP: f64 = 1e-3;

/// Ten times the larger of the two errors above, relative to the gradient (or 1).
const TOLERANCE: f64 = 1e-9;

fn run(subject: &Subject, case: &Case) -> Outcome {
    (subject.double)(Way::Fused, case)
}

/// Asserts for each input and parameter that the derivative along an arbitrary direction, and along an axis, is what the
/// gradient says.
fn assert_slopes(subject: &Subject, sizes: Sizes) {
    let case = subject.case(sizes);
    let outcome = run(subject, &case);
    for (name, gradient) in outcome.gradients() {
        let mut axis = vec![0.0; gradient.len()];
        axis[gradient.len() / 2] = 1.0;
        let arbitrary = scattered(&format!("direction of {name}"), gradient.len());
        for direction in [arbitrary, axis] {
            let length = direction.iter().map(|v| v * v).sum::<f64>().sqrt();
            let unit: Vec<f64> = direction.iter().map(|v| v / length).collect();
            let said: f64 = gradient.iter().zip(&unit).map(|(g, u)| g * u).sum();
            let found = slope(subject, &case, name, &unit);
            assert!(
                (said - found).abs() <= TOLERANCE * said.abs().max(1.0),
                "{sizes:?}: {name}: the gradient says {said}, differences {found}"
            );
        }
    }
}

/// The derivative of the loss along a direction in one of the tensors.
fn slope(subject: &Subject, case: &Case, name: &str, direction: &[f64]) -> f64 {
    let loss_at = |steps: f64| {
        let mut moved = case.clone();
        for (value, d) in moved.state.flat_mut(name).iter_mut().zip(direction) {
            *value += steps * STEP * d;
        }
        run(subject, &moved).loss()
    };
    let near = loss_at(1.0) - loss_at(-1.0);
    let far = loss_at(2.0) - loss_at(-2.0);
    (8.0 * near - far) / (12.0 * STEP)
}

fn slopes(subject: &Subject) {
    assert_slopes(subject, Sizes::square(2, 3));
    assert_slopes(subject, Sizes::square(1, 67));
}

fn slopes_across(subject: &Subject) {
    assert_slopes(subject, Sizes::new(2, 4, 3));
    assert_slopes(subject, Sizes::new(1, 3, 70));
}

tests! {
    slopes, |x, _case| x;

    of_plain_attention [heads = 2, d_model = 8];
    of_rotated_normed_and_capped_scores_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, head_dim = 4, mask = causal, position = rope, qk_norm = rms, softcap = 2];
    of_linear_biases_under_softmax1_in_a_window [heads = 3, d_model = 9, mask = sliding_window(20), position = alibi, normalizer = softmax1];
    of_relative_biases_under_sigmoid [heads = 2, d_model = 8, mask = prefix_lm(2), position = rel_pos_bias(8, 40), normalizer = sigmoid, bias = [k, v]];
    of_sinks_with_dropout [heads = 2, d_model = 8, mask = causal, normalizer = sink, dropout = 0.3];
    of_capped_relative_biases_with_dropout [heads = 2, d_model = 8, mask = causal, position = rel_pos_bias(6, 30), softcap = 1.5, dropout = 0.3];
    of_capped_additive_scores [heads = 2, kv_heads = 1, d_model = 8, score = additive(hidden = 3), softcap = 1.5, value_head_dim = 3];
    of_additive_scores_with_dropout_under_softmax1 [heads = 2, d_model = 8, score = additive(hidden = 3), normalizer = softmax1, dropout = 0.3, mask = chunked(40)];
}

tests! {
    slopes, |x, _case| x;

    of_a_parameter_that_all_heads_share [heads = 2, d_model = 8, mask = causal] {
        param mix: [1] = zeros;
        fn score(score, q_idx, kv_idx) { score * sigmoid(mix[0]) - 0.1 * exp(mix[0]) * (q_idx - kv_idx) as f32 }
    };
    of_a_table_of_distances [heads = 2, d_model = 8] {
        param bias: [heads, 9] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[h, clamp(q_idx - kv_idx + 4, 0, 8)] }
    };
    of_places_alone [heads = 4, kv_heads = 2, d_model = 8, mask = causal] {
        param rate: [heads] = ones;
        param shift: [5] = zeros;
        fn score(h, q_idx, kv_idx) { shift[kv_idx % 5] - 0.1 * exp(rate[h]) * (q_idx - kv_idx) as f32 }
    };
    of_weights_by_a_function [heads = 2, d_model = 8] {
        param gain: [heads] = ones;
        fn normalize(score, h, kv_len) { gain[h] * sigmoid(score) / kv_len as f32 }
    };
}

tests! {
    slopes, |x, case| (x, case.documents());

    of_a_scale_of_documents [heads = 2, d_model = 8] {
        param scale: [10] = ones;
        data doc: ids[batch, q_len];
        fn score(score, b, q_idx, kv_idx) { score * scale[doc[b, q_idx]] + scale[doc[b, kv_idx]] }
    };

    of_normed_bilinear_scores_within_documents [heads = 4, kv_heads = 2, d_model = 8, head_dim = 7, mask = document & causal, score = bilinear, qk_norm = rms];
}

tests! {
    slopes_across, |x, context, _case| (x, context);

    of_places_of_a_context [heads = 2, d_model = 8, d_context = 6, value_head_dim = 3] {
        param rate: [heads] = ones;
        fn score(h, q_idx, kv_idx) { -0.1 * exp(rate[h]) * abs(q_idx - kv_idx) as f32 }
    };
    of_cosines_of_a_context [heads = 2, d_model = 8, d_context = 6, value_head_dim = 3, qk_norm = l2, scale = 5, mask = causal(lower_right)];
    of_rotated_cosines_with_dropout_under_sigmoid [heads = 2, d_model = 8, d_context = 5, qk_norm = l2, scale = 3, position = rope, normalizer = sigmoid, dropout = 0.3];
}

tests! {
    slopes_across, |x, context, case| (x, context, case.marks());

    of_padded_bilinear_scores_of_a_context [heads = 2, d_model = 8, d_context = 6, mask = padding, score = bilinear, softcap = 3];
}
