//! The gradients of the fused form against central differences of its output, over more than one tile.

use super::{
    compare::Outcome,
    subject::{Case, Sizes, Subject, Way},
};
use support::gradients::assert_gradients_of_state;

/// Asserts it for each input and parameter.
fn assert_slopes(subject: &Subject, sizes: Sizes) {
    let case = subject.case(sizes);
    let run = |case: &Case| -> Outcome { (subject.double)(Way::Fused, case) };
    assert_gradients_of_state(format!("{sizes:?}"), &case.state, &run(&case), &|state| {
        let mut moved = case.clone();
        moved.state = state.clone();
        run(&moved).loss()
    });
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

    plain_attention [heads = 2, d_model = 8];
    rotated_normed_and_capped_scores_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, head_dim = 4, mask = causal, position = rope, qk_norm = rms, softcap = 2];
    linear_biases_under_softmax1_in_a_window [heads = 3, d_model = 9, mask = sliding_window(20), position = alibi, normalizer = softmax1];
    relative_biases_under_sigmoid [heads = 2, d_model = 8, mask = prefix_lm(2), position = rel_pos_bias(8, 40), normalizer = sigmoid, bias = [k, v]];
    sinks_with_dropout [heads = 2, d_model = 8, mask = causal, normalizer = sink, dropout = 0.3];
    capped_relative_biases_with_dropout [heads = 2, d_model = 8, mask = causal, position = rel_pos_bias(6, 30), softcap = 1.5, dropout = 0.3];
    capped_additive_scores [heads = 2, kv_heads = 1, d_model = 8, score = additive(hidden = 3), softcap = 1.5, value_head_dim = 3];
    heads_that_talk [heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms, softcap = 2, normalizer = sink, dropout = 0.3, talking_heads = both];
    mixed_relative_biases_under_sigmoid [heads = 2, d_model = 8, mask = causal, position = rel_pos_bias(8, 40), normalizer = sigmoid, talking_heads = both];
    additive_scores_with_dropout_under_softmax1 [heads = 2, d_model = 8, score = additive(hidden = 3), normalizer = softmax1, dropout = 0.3, mask = chunked(40)];
}

tests! {
    slopes, |x, _case| x;

    a_parameter_that_all_heads_share [heads = 2, d_model = 8, mask = causal] {
        param mix: [1] = zeros;
        fn score(score, q_idx, kv_idx) { score * sigmoid(mix[0]) - 0.1 * exp(mix[0]) * (q_idx - kv_idx) as f32 }
    };
    a_table_of_distances [heads = 2, d_model = 8] {
        param bias: [heads, 9] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[h, clamp(q_idx - kv_idx + 4, 0, 8)] }
    };
    places_alone [heads = 4, kv_heads = 2, d_model = 8, mask = causal] {
        param rate: [heads] = ones;
        param shift: [5] = zeros;
        fn score(h, q_idx, kv_idx) { shift[kv_idx % 5] - 0.1 * exp(rate[h]) * (q_idx - kv_idx) as f32 }
    };
    weights_by_a_function [heads = 2, d_model = 8] {
        param gain: [heads] = ones;
        fn normalize(score, h, kv_len) { gain[h] * sigmoid(score) / kv_len as f32 }
    };
}

tests! {
    slopes, |x, case| (x, case.documents());

    a_scale_of_documents [heads = 2, d_model = 8] {
        param scale: [10] = ones;
        data doc: ids[batch, q_len];
        fn score(score, b, q_idx, kv_idx) { score * scale[doc[b, q_idx]] + scale[doc[b, kv_idx]] }
    };

    normed_bilinear_scores_within_documents [heads = 4, kv_heads = 2, d_model = 8, head_dim = 7, mask = document & causal, score = bilinear, qk_norm = rms];
}

tests! {
    slopes_across, |x, context, _case| (x, context);

    places_of_a_context [heads = 2, d_model = 8, d_context = 6, value_head_dim = 3] {
        param rate: [heads] = ones;
        fn score(h, q_idx, kv_idx) { -0.1 * exp(rate[h]) * abs(q_idx - kv_idx) as f32 }
    };
    cosines_of_a_context [heads = 2, d_model = 8, d_context = 6, value_head_dim = 3, qk_norm = l2, scale = 5, mask = causal(lower_right)];
    rotated_cosines_with_dropout_under_sigmoid [heads = 2, d_model = 8, d_context = 5, qk_norm = l2, scale = 3, position = rope, normalizer = sigmoid, dropout = 0.3];
}

tests! {
    slopes_across, |x, context, case| (x, context, case.marks());

    padded_bilinear_scores_of_a_context [heads = 2, d_model = 8, d_context = 6, mask = padding, score = bilinear, softcap = 3];
}
