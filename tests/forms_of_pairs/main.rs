//! All pairs of values of two keys: every pair that is valid occurs in one of these specs, or in another test of both forms. The
//! values are, for example, a narrow or wide value head, a bias on none or some projections, each kind of mask.

#[macro_use(tests)]
extern crate support;

use support::agreement::{agree, agree_across};

tests! {
    agree, |x, _case| x;

    grouped_chunked_additive_capped_unbiased [heads = 4, d_model = 8, kv_heads = 2, mask = chunked(48), score = additive(hidden = 5), softcap = 1.5, bias = false];
    grouped_narrow_dilated_bilinear_sigmoid_alibi_rms_half_biased_dropout [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 1, mask = dilated_sliding_window(20, 3, symmetric), score = bilinear, normalizer = sigmoid, position = alibi, qk_norm = rms, bias = [o], dropout = 0.3];
    grouped_scaled_sigmoid_table_dropout [heads = 4, d_model = 8, kv_heads = 2, scale = 0.6, normalizer = sigmoid, position = rel_pos_bias(8, 60), dropout = 0.3];
    grouped_wide_causal_dot_softmax1_rope_l2_dropout [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = causal, score = dot, normalizer = softmax1, position = rope, qk_norm = l2, dropout = 0.3];
    grouped_wide_prefix_additive_softmax1 [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = prefix_lm(5), score = additive(hidden = 5), normalizer = softmax1];
    narrow_either_dot_capped_sigmoid_rope_l2_dropout [heads = 4, d_model = 8, value_head_dim = 1, mask = (causal | chunked(16)), score = dot, softcap = 1.5, normalizer = sigmoid, position = rope, qk_norm = l2, dropout = 0.3];
    narrow_softmax1_rope_rms [heads = 4, d_model = 8, value_head_dim = 1, normalizer = softmax1, position = rope, qk_norm = rms];
    shared_prefix_softmax1_table_rms_unbiased [heads = 4, d_model = 8, kv_heads = 1, mask = prefix_lm(5), normalizer = softmax1, position = rel_pos_bias(8, 60), qk_norm = rms, bias = false];
}

tests! {
    agree, |x, case| (x, case.marks());

    grouped_additive_softmax1_unbiased [heads = 4, d_model = 8, kv_heads = 2, mask = padding, score = additive(hidden = 5), normalizer = softmax1, bias = false];
    grouped_wide_outside_bilinear_scaled_capped_table_half_biased_dropout [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = !sliding_window(30) & padding, bidirectional = true, score = bilinear, scale = 0.6, softcap = 1.5, position = rel_pos_bias(8, 60), bias = [k, o], dropout = 0.3];
    narrow_either_dot_capped_table_l2_dropout [heads = 4, d_model = 8, value_head_dim = 1, mask = (causal | chunked(16)) & padding, score = dot, softcap = 1.5, position = rel_pos_bias(8, 60), qk_norm = l2, dropout = 0.3];
    wide_window_bilinear_capped_sigmoid_table_l2_half_biased [heads = 4, d_model = 8, value_head_dim = 17, mask = sliding_window(40) & padding, score = bilinear, softcap = 1.5, normalizer = sigmoid, position = rel_pos_bias(8, 60), qk_norm = l2, bias = [o]];
}

tests! {
    agree, |x, case| (x, case.documents());

    chunked_dot_capped_sigmoid_alibi_l2_dropout [heads = 4, d_model = 8, mask = chunked(48) & document, score = dot, softcap = 1.5, normalizer = sigmoid, position = alibi, qk_norm = l2, dropout = 0.3];
    grouped_narrow_prefix_capped_sigmoid_rope_unbiased_dropout [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 1, mask = prefix_lm(5) & document, softcap = 1.5, normalizer = sigmoid, position = rope, bias = false, dropout = 0.3];
    shared_narrow_chunked_bilinear_scaled_capped_softmax1_table_rms_half_biased [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = chunked(48) & document, score = bilinear, scale = 0.6, softcap = 1.5, normalizer = softmax1, position = rel_pos_bias(8, 60), qk_norm = rms, bias = [o]];
    shared_narrow_outside_scaled_capped_rope_rms_half_biased_dropout [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = !sliding_window(30) & document, scale = 0.6, softcap = 1.5, position = rope, qk_norm = rms, bias = [q, k], dropout = 0.3];
    shared_wide_dilated_additive_capped_softmax1_dropout [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 17, mask = dilated_sliding_window(20, 3, symmetric) & document, score = additive(hidden = 5), softcap = 1.5, normalizer = softmax1, dropout = 0.3];
    shared_wide_either_bilinear_scaled_capped_softmax1_alibi_unbiased [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 17, mask = (causal | chunked(16)) & document, score = bilinear, scale = 0.6, softcap = 1.5, normalizer = softmax1, position = alibi, bias = false];
}

tests! {
    agree_across, |x, context, _case| (x, context);

    grouped_either_scaled_sigmoid_rms_dropout [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, mask = (causal(lower_right) | chunked(16, lower_right)), scale = 0.6, normalizer = sigmoid, qk_norm = rms, dropout = 0.3];
    grouped_wide_prefix_sigmoid_alibi_l2_unbiased [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 17, mask = prefix_lm(5, lower_right), normalizer = sigmoid, position = alibi, qk_norm = l2, bias = false];
    narrow_window_additive_softmax1_half_biased_dropout [heads = 4, d_model = 8, d_context = 6, value_head_dim = 1, mask = sliding_window(40, lower_right), score = additive(hidden = 5), normalizer = softmax1, bias = [k, o], dropout = 0.3];
    shared_outside_dot_capped_softmax1_alibi_l2_unbiased_dropout [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, mask = !sliding_window(30, upper_left), score = dot, softcap = 1.5, normalizer = softmax1, position = alibi, qk_norm = l2, bias = false, dropout = 0.3];
}

tests! {
    agree_across, |x, context, case| (x, context, case.lengths());

    grouped_wide_bilinear_scaled_capped_l2_half_biased_dropout [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 17, mask = padding, score = bilinear, scale = 0.6, softcap = 1.5, qk_norm = l2, bias = [k, o], dropout = 0.3];
    narrow_causal_additive_half_biased [heads = 4, d_model = 8, d_context = 6, value_head_dim = 1, mask = causal(lower_right) & padding, score = additive(hidden = 5), bias = [q, k]];
    narrow_outside_bilinear_capped_rms_unbiased_dropout [heads = 4, d_model = 8, d_context = 6, value_head_dim = 1, mask = !sliding_window(30, lower_right) & padding, score = bilinear, softcap = 1.5, qk_norm = rms, bias = false, dropout = 0.3];
    shared_prefix_dot_capped_softmax1_rms_half_biased [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, mask = prefix_lm(5, lower_right) & padding, score = dot, softcap = 1.5, normalizer = softmax1, qk_norm = rms, bias = [o]];
    shared_wide_dilated_dot_rope [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = dilated_sliding_window(20, 3, symmetric, upper_left) & padding, score = dot, position = rope];
    wide_chunked_sigmoid_rope_rms_unbiased_dropout [heads = 4, d_model = 8, d_context = 6, value_head_dim = 17, mask = chunked(48, upper_left) & padding, normalizer = sigmoid, position = rope, qk_norm = rms, bias = false, dropout = 0.3];
    wide_prefix_bilinear_scaled_alibi_dropout [heads = 4, d_model = 8, d_context = 6, value_head_dim = 17, mask = prefix_lm(5, lower_right) & padding, score = bilinear, scale = 0.6, position = alibi, dropout = 0.3];
}

tests! {
    agree_across, |x, context, case| (x, context, (case.documents(), case.key_documents()));

    dilated_scaled_capped_softmax1_table_l2_unbiased [heads = 4, d_model = 8, d_context = 6, mask = dilated_sliding_window(20, 3, symmetric, lower_right) & document, scale = 0.6, softcap = 1.5, normalizer = softmax1, position = rel_pos_bias(8, 60), qk_norm = l2, bias = false];
    either_additive_softmax1_half_biased [heads = 4, d_model = 8, d_context = 6, mask = (causal(upper_left) | chunked(16, upper_left)) & document, score = additive(hidden = 5), normalizer = softmax1, bias = [k, o]];
    grouped_wide_causal_scaled_capped_softmax1_table_rms_unbiased [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 17, mask = causal(lower_right) & document, scale = 0.6, softcap = 1.5, normalizer = softmax1, position = rel_pos_bias(8, 60), qk_norm = rms, bias = false];
    grouped_window_scaled_capped_rope_rms_unbiased [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, mask = sliding_window(40, lower_right) & document, scale = 0.6, softcap = 1.5, position = rope, qk_norm = rms, bias = false];
    shared_causal_bilinear_scaled_capped_sigmoid_alibi_l2_unbiased [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, mask = causal(lower_right) & document, score = bilinear, scale = 0.6, softcap = 1.5, normalizer = sigmoid, position = alibi, qk_norm = l2, bias = false];
    shared_narrow_dot_softmax1_alibi_unbiased [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 1, mask = document, score = dot, normalizer = softmax1, position = alibi, bias = false];
    shared_wide_outside_additive_sigmoid [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = !sliding_window(30, upper_left) & document, score = additive(hidden = 5), normalizer = sigmoid];
    shared_wide_window_dot_sigmoid_alibi_rms_dropout [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = sliding_window(40, lower_right) & document, score = dot, normalizer = sigmoid, position = alibi, qk_norm = rms, dropout = 0.3];
}

// The normalizers with a parameter of their own, and those that are not smooth.

tests! {
    agree, |x, case| (x, case.marks());

    shared_narrow_padded_bilinear_sink [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = causal & padding, score = bilinear, normalizer = sink, qk_norm = l2, position = alibi, bias = false];
    shared_narrow_padded_bilinear_relu [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = sliding_window(40) & padding, score = bilinear, normalizer = relu(2), qk_norm = rms, position = alibi, bias = [o]];
    shared_narrow_padded_bilinear_sparsemax [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = dilated_sliding_window(20, 3, symmetric) & padding, score = bilinear, normalizer = sparsemax, qk_norm = l2, position = rel_pos_bias(8, 60), bias = [k, o]];
    shared_narrow_padded_bilinear_entmax [heads = 4, d_model = 8, kv_heads = 1, value_head_dim = 1, mask = prefix_lm(5) & padding, score = bilinear, normalizer = entmax15, qk_norm = rms, position = alibi, bias = [q, k]];
}

tests! {
    agree, |x, case| (x, case.documents());

    grouped_wide_documents_dot_sink [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = sliding_window(40) & document, score = dot, softcap = 1.5, normalizer = sink, qk_norm = rms, position = rope, dropout = 0.3];
    grouped_wide_documents_dot_relu [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = dilated_sliding_window(20, 3, symmetric) & document, score = dot, softcap = 1.5, normalizer = relu(2), qk_norm = l2, position = rel_pos_bias(8, 60), dropout = 0.3];
    grouped_wide_documents_dot_sparsemax [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = prefix_lm(5) & document, score = dot, softcap = 1.5, normalizer = sparsemax, qk_norm = rms, position = alibi, dropout = 0.3];
    grouped_wide_documents_dot_entmax [heads = 4, d_model = 8, kv_heads = 2, value_head_dim = 17, mask = chunked(48) & document, score = dot, softcap = 1.5, normalizer = entmax15, qk_norm = l2, position = rope, dropout = 0.3];
}

tests! {
    agree_across, |x, context, _case| (x, context);

    additive_sink [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 1, mask = dilated_sliding_window(20, 3, symmetric, upper_left), score = additive(hidden = 5), softcap = 1.5, normalizer = sink, bias = [o], dropout = 0.3];
    additive_relu [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 1, mask = prefix_lm(5, lower_right), score = additive(hidden = 5), softcap = 1.5, normalizer = relu(2), bias = [k, o], dropout = 0.3];
    additive_sparsemax [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 1, mask = chunked(48, upper_left), score = additive(hidden = 5), softcap = 1.5, normalizer = sparsemax, bias = [q, k], dropout = 0.3];
    additive_entmax [heads = 4, d_model = 8, d_context = 6, kv_heads = 2, value_head_dim = 1, mask = !sliding_window(30, lower_right), score = additive(hidden = 5), softcap = 1.5, normalizer = entmax15, bias = false, dropout = 0.3];
}

tests! {
    agree_across, |x, context, case| (x, context, case.lengths());

    shared_wide_padded_sink [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = prefix_lm(5, lower_right) & padding, normalizer = sink, scale = 0.6, position = rel_pos_bias(8, 60), bias = [k, o], dropout = 0.3];
    shared_wide_padded_relu [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = chunked(48, upper_left) & padding, normalizer = relu(2), scale = 0.6, position = alibi, bias = [q, k], dropout = 0.3];
    shared_wide_padded_sparsemax [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = !sliding_window(30, lower_right) & padding, normalizer = sparsemax, scale = 0.6, position = rope, bias = false, dropout = 0.3];
    shared_wide_padded_entmax [heads = 4, d_model = 8, d_context = 6, kv_heads = 1, value_head_dim = 17, mask = (causal(lower_right) | chunked(16, lower_right)) & padding, normalizer = entmax15, scale = 0.6, position = rel_pos_bias(8, 60), bias = [o], dropout = 0.3];
}

tests! {
    agree, |x, _case| x;

    either_relu_rope_unbiased [heads = 2, d_model = 8, mask = (causal | chunked(16)), normalizer = relu, position = rope, bias = false];
    either_sink [heads = 2, d_model = 8, mask = (causal | chunked(16)), normalizer = sink];
    either_sparsemax [heads = 2, d_model = 8, mask = (causal | chunked(16)), normalizer = sparsemax];
    chunked_sink [heads = 2, d_model = 8, mask = chunked(48), normalizer = sink];
    dilated_entmax [heads = 2, d_model = 8, mask = dilated_sliding_window(20, 3, symmetric), normalizer = entmax15];
    outside_relu [heads = 2, d_model = 8, mask = !sliding_window(30), normalizer = relu];
    window_entmax [heads = 2, d_model = 8, mask = sliding_window(40), normalizer = entmax15];
    window_sparsemax [heads = 2, d_model = 8, mask = sliding_window(40), normalizer = sparsemax];
}
