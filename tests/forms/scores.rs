//! Scores and normalizers.

use support::agreement::{LARGE, agree, agree_beyond_a_tile, agree_on_large_scores};

tests! {
    agree_beyond_a_tile, |x, _case| x;

    additive_beyond_a_tile [heads = 2, d_model = 8, score = additive(hidden = 2), mask = causal];
    rope_beyond_a_tile [heads = 2, d_model = 8, position = rope, qk_norm = rms];
    relative_bias_beyond_a_tile [heads = 2, d_model = 8, position = rel_pos_bias(8, 200), mask = causal];
    sink_beyond_a_tile [heads = 2, d_model = 8, normalizer = sink, mask = causal];
    sparsemax_beyond_a_tile [heads = 2, d_model = 8, normalizer = sparsemax, mask = causal];
    entmax15_beyond_a_tile [heads = 2, d_model = 8, normalizer = entmax15, position = alibi];
    sigmoid_beyond_a_tile [heads = 2, d_model = 8, normalizer = sigmoid, position = alibi, mask = causal];
}

tests! {
    agree, |x, _case| x;

    dot [heads = 2, d_model = 8, score = dot];
    additive [heads = 2, d_model = 8, score = additive(hidden = 5)];
    additive_with_one_unit [heads = 2, d_model = 8, score = additive(hidden = 1)];
    additive_with_shared_keys [heads = 4, kv_heads = 2, d_model = 8, score = additive(19), value_head_dim = 3, mask = causal];
    bilinear [heads = 2, d_model = 8, score = bilinear];
    bilinear_with_shared_keys [heads = 4, kv_heads = 1, d_model = 8, head_dim = 5, score = bilinear, mask = causal];

    scale [heads = 2, d_model = 8, scale = 0.3];
    scale_of_one [heads = 2, d_model = 8, scale = 1];
    scale_of_bilinear [heads = 2, d_model = 8, score = bilinear, scale = 0.7];
    softcap [heads = 2, d_model = 8, softcap = 2];
    softcap_of_additive [heads = 2, d_model = 8, score = additive(hidden = 3), softcap = 0.8];
    softcap_before_a_bias [heads = 2, d_model = 8, softcap = 1.5, position = alibi];
    softcap_before_a_learned_bias [heads = 2, d_model = 8, softcap = 1.5, position = rel_pos_bias(6, 20)];

    softmax1 [heads = 2, d_model = 8, normalizer = softmax1];
    sigmoid [heads = 2, d_model = 8, normalizer = sigmoid];
    sink [heads = 2, d_model = 8, normalizer = sink];
    sink_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, normalizer = sink, mask = causal];
    relu [heads = 2, d_model = 8, normalizer = relu];
    relu_squared_of_additive [heads = 2, d_model = 8, score = additive(hidden = 3), normalizer = relu(2), mask = causal];
    sparsemax [heads = 2, d_model = 8, normalizer = sparsemax];
    sparsemax_of_capped_additive [heads = 2, d_model = 8, score = additive(hidden = 3), normalizer = sparsemax, softcap = 2];
    entmax15 [heads = 2, d_model = 8, normalizer = entmax15];
    entmax15_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, normalizer = entmax15, position = rel_pos_bias(6, 20), mask = causal];
    sink_of_queries_without_keys [heads = 2, d_model = 8, normalizer = sink, mask = causal & !sliding_window(5)];
    sparsemax_of_queries_without_keys [heads = 2, d_model = 8, normalizer = sparsemax, mask = causal & !sliding_window(5)];
    entmax15_of_queries_without_keys [heads = 2, d_model = 8, normalizer = entmax15, mask = causal & !sliding_window(5)];
    softmax1_of_queries_without_keys [heads = 2, d_model = 8, normalizer = softmax1, mask = causal & !sliding_window(5)];
    sigmoid_of_queries_without_keys [heads = 2, d_model = 8, normalizer = sigmoid, mask = causal & !sliding_window(5)];

    rope [heads = 2, d_model = 8, position = rope];
    rope_with_another_base [heads = 2, d_model = 8, position = rope(theta = 100)];
    rope_of_two_numbers [heads = 4, d_model = 8, position = rope, mask = causal];
    rope_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, head_dim = 34, position = rope];
    alibi [heads = 2, d_model = 8, position = alibi];
    alibi_of_three_heads [heads = 3, d_model = 9, position = alibi, mask = causal];
    relative_bias [heads = 2, d_model = 8, position = rel_pos_bias];
    relative_bias_of_few_buckets [heads = 2, d_model = 8, position = rel_pos_bias(4, 5)];
    relative_bias_causal [heads = 2, d_model = 8, position = rel_pos_bias(7, 50), mask = causal];
    relative_bias_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, position = rel_pos_bias(8, 30), mask = sliding_window(30)];

    rms [heads = 2, d_model = 8, qk_norm = rms];
    l2 [heads = 2, d_model = 8, qk_norm = l2, scale = 5];
    rms_then_rope [heads = 2, d_model = 8, qk_norm = rms, position = rope, mask = causal];
    l2_then_rope [heads = 2, d_model = 8, head_dim = 18, qk_norm = l2, position = rope];
    rms_of_bilinear [heads = 2, d_model = 8, score = bilinear, qk_norm = rms];
}

// Scores of both signs up to 1e4 and more, of which one or two have nonzero weights in a softmax.
tests! {
    agree_on_large_scores, |x, _case| x;

    large_scores [heads = 2, d_model = 8, scale = LARGE];
    large_scores_causal [heads = 2, d_model = 8, scale = LARGE, mask = causal];
    large_scores_capped [heads = 2, d_model = 8, scale = LARGE, softcap = 30, mask = causal];
    large_scores_far_apart [heads = 2, d_model = 8, scale = LARGE, position = alibi, mask = sliding_window(20)];
    large_scores_under_softmax1 [heads = 2, d_model = 8, scale = LARGE, normalizer = softmax1];
    large_scores_under_a_sink [heads = 2, d_model = 8, scale = LARGE, normalizer = sink, mask = causal];
    large_scores_under_a_sigmoid [heads = 2, d_model = 8, scale = LARGE, normalizer = sigmoid, mask = causal];
    large_scores_under_sparsemax [heads = 2, d_model = 8, scale = LARGE, normalizer = sparsemax, mask = causal];
    large_scores_of_shared_keys [heads = 4, kv_heads = 2, d_model = 8, head_dim = 4, scale = LARGE, mask = causal];
}
