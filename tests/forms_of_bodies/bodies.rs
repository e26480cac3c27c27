//! Score functions and masks of bodies, and their parameters, over several tiles of queries and keys.

use support::agreement::{agree, agree_across, agree_beyond_a_tile};

tests! {
    agree_beyond_a_tile, |x, _case| x;

    learned_slopes [heads = 2, d_model = 8, mask = causal] {
        param slope: [heads] = alibi_slopes;
        fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
    };
    a_table_of_distances [heads = 2, d_model = 8] {
        param bias: [heads, 201] = normal(std = 0.5);
        fn score(score, h, q_idx, kv_idx) { score + bias[h, clamp(q_idx - kv_idx + 100, 0, 200)] }
    };
    gates_of_queries_and_of_keys [heads = 2, d_model = 8, mask = sliding_window(300)] {
        param of_query: [5] = normal(std = 0.5);
        param of_key: [heads, 7] = normal(std = 0.5);
        fn score(score, h, q_idx, kv_idx) {
            score * sigmoid(of_query[q_idx % 5] * of_key[h, kv_idx % 7])
        }
    };
    learned_widths_of_places_alone [heads = 4, kv_heads = 2, d_model = 8] {
        param width: [heads] = 9.0;
        fn score(h, q_idx, kv_idx) { -pow((q_idx - kv_idx) as f32 / width[h], 2) }
    };
    a_table_of_three_axes [heads = 2, d_model = 8, mask = causal] {
        param place: [heads, 3, 5] = normal(std = 0.5);
        param alone: [2, 3, 4, 5] = normal(std = 0.5);
        fn score(score, h, q_idx, kv_idx) {
            score * place[h, q_idx % 3, kv_idx % 5] + alone[kv_idx % 2, q_idx % 3, kv_idx % 4, q_idx % 5]
        }
    };
    a_table_of_distances_of_three_axes_alone [heads = 2, d_model = 8, mask = causal] {
        param bias: [heads, 7, 3] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { bias[h, abs(q_idx - kv_idx) % 7, abs(q_idx - kv_idx) % 3] }
    };
    a_table_of_distances_alone [heads = 2, d_model = 8, mask = causal] {
        param bias: [heads, 201] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { bias[h, clamp(q_idx - kv_idx, 0, 200)] }
    };
    windows_of_heads [heads = 3, d_model = 9, mask = causal] {
        fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < if h == 1 { 300 } else { 20 } || kv_idx < 2 }
    };
}

tests! {
    agree, |x, _case| x;

    capped_by_the_user [heads = 2, d_model = 8, mask = causal] {
        fn score(score) { 1.5 * tanh(score / 1.5) }
    };
    capped_twice_with_dropout [heads = 2, d_model = 8, softcap = 2, dropout = 0.3] {
        param cap: [heads] = 1.5;
        fn score(score, h) { cap[h] * tanh(score / cap[h]) }
    };
    shared_keys_under_softmax1 [heads = 4, kv_heads = 2, d_model = 8, normalizer = softmax1, position = rope] {
        param shift: [heads, 2] = normal(std = 0.5);
        fn score(score, h, q_idx, kv_idx) { score + shift[h, if kv_idx <= q_idx { 0 } else { 1 }] }
    };
    additive_scores_under_sigmoid [heads = 2, d_model = 8, score = additive(hidden = 5), normalizer = sigmoid] {
        param width: [1] = 9.0;
        fn score(score, q_idx, kv_idx) {
            let distance = (q_idx - kv_idx) as f32 / width[0];
            score - 0.5 * distance * distance
        }
    };
    branches_of_the_score [heads = 2, d_model = 8, position = alibi] {
        param slope: [heads] = 0.25;
        fn score(score, h) { if score > 0.0 { score } else { slope[h] * score } }
        fn mask(q_idx, kv_idx) { (q_idx + kv_idx) % 3 != 1 }
    };
    a_mask_of_floats [heads = 2, d_model = 8] {
        fn mask(q_idx, kv_idx) { sqrt((q_idx * q_idx + kv_idx * kv_idx) as f32) < 40.5 }
    };
}

// Functions of positions only, with every normalizer.
tests! {
    agree, |x, _case| x;

    places_with_dropout [heads = 2, d_model = 8, dropout = 0.3] {
        param shift: [5] = normal(std = 0.5);
        fn score(q_idx, kv_idx) { shift[(q_idx + kv_idx) % 5] }
    };
    places_under_softmax1 [heads = 2, d_model = 8, normalizer = softmax1, bias = [o]] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, kv_idx) { shift[h, kv_idx % 5] }
    };
    places_under_sinks [heads = 2, d_model = 8, mask = sliding_window(20), normalizer = sink, value_head_dim = 3] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { shift[h, abs(q_idx - kv_idx) % 5] }
    };
    places_under_sparsemax [heads = 2, d_model = 8] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { shift[h, q_idx * kv_idx % 5] - 0.1 * abs(q_idx - kv_idx) as f32 }
        fn normalize { sparsemax }
    };
    places_under_entmax15 [heads = 2, d_model = 8, normalizer = entmax15] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { shift[h, q_idx * kv_idx % 5] }
    };
    places_under_sigmoid [heads = 2, d_model = 8, normalizer = sigmoid] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { shift[h, q_idx * kv_idx % 5] }
    };
    weights_of_places [heads = 2, d_model = 8] {
        param gain: [heads] = ones;
        fn normalize(h, q_idx, kv_idx, kv_len) { gain[h] * exp(-(abs(q_idx - kv_idx) as f32)) / kv_len as f32 }
    };
    no_numbers_of_places [heads = 2, d_model = 8, mask = causal] {
        fn score() { 0.0 }
    };
}

// Each function on scores, which vectors compute, and on parameters, which are computed for a row of keys.
tests! {
    agree, |x, _case| x;

    exponentials [heads = 2, d_model = 8] {
        param rate: [heads] = 0.5;
        fn score(score, h) { exp(0.5 * score) + exp(rate[h]) * score }
    };
    logarithms [heads = 2, d_model = 8] {
        param rate: [heads] = 0.5;
        fn score(score, h) { ln(1.0 + score * score) + ln(1.5 + rate[h]) * score }
    };
    roots [heads = 2, d_model = 8] {
        param rate: [heads] = 0.5;
        fn score(score, h) { sqrt(1.0 + score * score) + sqrt(1.5 + rate[h]) * score }
    };
    absolute_values [heads = 2, d_model = 8] {
        param centre: [heads] = 0.5;
        fn score(score, h) { abs(score - centre[h]) + abs(centre[h]) * score }
    };
    minima [heads = 2, d_model = 8] {
        param bound: [heads, 2] = 0.5;
        fn score(score, h, kv_idx) { min(score, bound[h, 0]) + min(bound[h, 0], bound[h, 1]) * (kv_idx % 2) as f32 }
    };
    maxima [heads = 2, d_model = 8] {
        param bound: [heads, 2] = 0.5;
        fn score(score, h, kv_idx) { max(score, bound[h, 0]) + max(bound[h, 0], bound[h, 1]) * (kv_idx % 2) as f32 }
    };
    scores_between_bounds [heads = 2, d_model = 8] {
        param low: [heads] = 0.5;
        fn score(score, h) { clamp(score, low[h], low[h] + 0.4) + clamp(low[h], -0.1, 0.1) * score }
    };
    powers [heads = 2, d_model = 8] {
        param rate: [heads] = 0.5;
        fn score(score, h) { pow(1.0 + score * score, 1.5) + pow(rate[h], 3) * score }
    };
    steps [heads = 2, d_model = 8] {
        param rate: [heads] = 0.5;
        fn score(score, h) { 0.5 * floor(3.0 * score) + (rate[h] + floor(5.0 * rate[h])) * score }
    };
}

tests! {
    agree_across, |x, context, _case| (x, context);

    slopes_of_a_context [heads = 2, d_model = 8, d_context = 6] {
        param slope: [heads] = 0.1;
        fn score(score, h, q_idx, kv_idx, q_len, kv_len) {
            score - slope[h] * abs((q_idx + kv_len - q_len - kv_idx) as f32)
        }
        fn mask(q_idx, kv_idx, q_len, kv_len) { kv_idx <= q_idx + kv_len - q_len }
    };
    places_of_a_context [heads = 4, kv_heads = 2, d_model = 8, d_context = 6] {
        param shift: [heads, 5] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { shift[h, (q_idx + 2 * kv_idx) % 5] }
    };
    weights_of_places_of_a_context [heads = 2, d_model = 8, d_context = 6, mask = causal(lower_right)] {
        param gain: [heads] = ones;
        fn normalize(h, q_idx, kv_idx) { gain[h] / (1 + q_idx + kv_idx) as f32 }
    };
}
