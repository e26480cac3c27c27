//! Both forms agree.

mod of_one_sequence {
    use support::agreement::agree;

    tests! {
        agree, |x, _case| x;

        both [heads = 4, d_model = 8, talking_heads = both];
        before [heads = 2, d_model = 8, talking_heads = before];
        after [heads = 3, d_model = 9, talking_heads = after, mask = causal];
        one_head [heads = 1, d_model = 8, talking_heads = both, mask = causal];
        shared_keys [heads = 4, kv_heads = 2, d_model = 8, talking_heads = both, mask = sliding_window(20)];
        one_key_head [heads = 4, kv_heads = 1, d_model = 8, head_dim = 5, value_head_dim = 3, talking_heads = both];
        rotated [heads = 2, d_model = 8, talking_heads = both, mask = causal, position = rope, qk_norm = rms];
        biased [heads = 2, d_model = 8, talking_heads = both, position = rel_pos_bias(8, 40), softcap = 2.0];
        alibi [heads = 2, d_model = 8, talking_heads = before, mask = causal, position = alibi];
        additive [heads = 2, d_model = 8, talking_heads = both, score = additive(hidden = 5), mask = causal];
        bilinear [heads = 2, d_model = 8, talking_heads = both, score = bilinear];
        with_sinks [heads = 2, d_model = 8, talking_heads = both, normalizer = sink, mask = causal];
        softmax1 [heads = 2, d_model = 8, talking_heads = both, normalizer = softmax1];
        sparsemax [heads = 2, d_model = 8, talking_heads = both, normalizer = sparsemax, mask = causal];
        entmax15 [heads = 2, d_model = 8, talking_heads = both, normalizer = entmax15];
        sigmoid [heads = 2, d_model = 8, talking_heads = both, normalizer = sigmoid, mask = causal];
        relu_after [heads = 2, d_model = 8, talking_heads = after, normalizer = relu(2.0)];
        dropped [heads = 2, d_model = 8, talking_heads = both, mask = causal, dropout = 0.3];
        of_a_body [heads = 2, d_model = 8, talking_heads = both, mask = causal] {
            param slope: [heads] = ones;
            param table: [3] = ones;
            fn score(score, h, q_idx, kv_idx) { score * slope[h] + table[(q_idx + kv_idx) % 3] }
            fn normalize(score) { sigmoid(score) * score }
        };
        of_places [heads = 2, d_model = 8, talking_heads = both] {
            param slope: [heads] = ones;
            fn score(h, q_idx, kv_idx) { -slope[h] * abs(q_idx - kv_idx) as f32 }
        };
        padded_by_a_rule [heads = 2, d_model = 8, talking_heads = both] {
            fn mask(q_idx, kv_idx) { (q_idx + kv_idx) % 3 != 0 && q_idx % 5 != 2 }
        };
    }
}

mod across {
    use support::agreement::agree_across;

    tests! {
        agree_across, |x, context, case| (x, context, case.lengths());

        padded [heads = 2, d_model = 8, d_context = 6, talking_heads = both, mask = padding];
        padded_and_mixed_before [heads = 4, kv_heads = 2, d_model = 8, d_context = 5, talking_heads = before, mask = padding & causal(lower_right)];
    }
}
