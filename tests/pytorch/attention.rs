//! Every key and word of an attention.

cases! {
    plain {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<heads = 2, d_model = d>(x) }
    } (x: floats[_, _, 4]);

    causal_with_fewer_keys_and_values {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<4, kv_heads = 2, mask = causal, bias = false>(x)
        }
    } (x: floats[_, _, 8]);

    widths_of_heads {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, head_dim = 3, value_head_dim = 5, bias = [q, v], scale = 0.3>(x)
        }
    } (x: floats[_, _, 4]);

    windows {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, mask = sliding_window(2), bias = false, name = window>(x)
                + attention::<2, mask = sliding_window(2, symmetric), bias = false, name = both>(x)
                + attention::<2, mask = dilated_sliding_window(2, 2), bias = false, name = dilated>(x)
                + attention::<2, mask = prefix_lm(2), bias = false, name = prefix>(x)
                + attention::<2, mask = chunked(2), bias = false, name = chunks>(x)
        }
    } (x: floats[_, _, 4]);

    masks_of_data {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], lens: lens[batch], keep: bool[batch, seq], documents: ids[batch, seq]) -> [batch, seq, d] {
            let z = attention::<2, mask = padding, name = by_lens>(x, padding = lens);
            let z = z + attention::<2, mask = padding & causal, name = by_marks>(x, padding = keep);
            let z = z + attention::<2, mask = document & causal, name = by_document>(x, document = documents);
            z + attention::<2, mask = !padding | causal, name = by_no_mark>(x, padding = keep)
        }
    } (x: floats[_, _, 4], lens: lens[_], keep: bools[_, _], documents: ids[_, _]);

    of_a_context {
        struct M<d = 4>;
        fn forward(x: [batch, q, d], y: [batch, k, 3], lens: lens[batch]) -> [batch, q, d] {
            let z = attention::<2, mask = padding>(x, context = y, padding = lens);
            let z = z + attention::<2, mask = causal(upper_left), name = upper>(x, context = y);
            z + attention::<2, mask = sliding_window(2, lower_right), name = lower>(x, context = y)
        }
    } (x: floats[_, _, 4], y: floats[_, _, 3], lens: lens[_]);

    of_keys_and_values {
        struct M<d = 4>;
        fn forward(x: [batch, q, d], y: [batch, k, 3], z: [batch, k, 5], lens: lens[batch]) -> [batch, q, d] {
            attention::<2, mask = padding>(x, context = y, values = z, padding = lens)
                + attention::<2, kv_heads = 1, position = rope, name = shared>(x, context = y, values = z)
        }
    } (x: floats[_, _, 4], y: floats[_, _, 3], z: floats[_, _, 5], lens: lens[_]);

    on_a_grid {
        struct M<d = 4, rows = 3, cols = 4>;
        fn forward(x: [batch, seq, d], y: [batch, few, 3]) -> [batch, seq, d] {
            let z = attention::<2, grid = [rows, cols], mask = neighborhood(3, rows = 2), name = near>(x);
            let z = z + attention::<2, grid = [2, 6], mask = neighborhood(2, dilation = 2), name = dilated>(x);
            let z = z + attention::<2, grid = [rows, cols], mask = local(3), name = around>(x);
            let z = z + attention::<2, grid = [rows, cols], mask = window(2, shift = 1), name = shifted>(x);
            let z = z + attention::<2, grid = [rows, cols], mask = same_row | same_col, name = cross>(x);
            let z = z + attention::<2, grid = [3, 2, 2], mask = same_frame, name = frames>(x);
            let z = z + attention::<2, grid = [5, 2], prefix_tokens = 2, mask = same_row, name = classes>(x);
            z + attention::<2, grid = [rows, cols], kv_grid = [3, 2], mask = same_row, name = other>(x, context = y)
        }
    } (x: floats[_, _, 4], y: floats[_, _, 3]);

    shifted_windows_of_swin {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 2, grid = [4, 6], mask = window(2, shift = 1)>(x) {
                param table: [9, heads] = truncated_normal(0.02);
                fn score(score, h, q_row, q_col, kv_row, kv_col) {
                    score + table[(clamp(q_row - kv_row, -1, 1) + 1) * 3 + clamp(q_col - kv_col, -1, 1) + 1, h]
                }
            }
        }
    } (x: floats[_, _, 4]);

    talking_heads {
        struct M<d = 4, heads = 2, softmaxes = 3, width = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param w_q: [heads, width, d] = xavier_uniform;
            param w_k: [heads, width, d] = xavier_uniform;
            param w_v: [heads, width, d] = xavier_uniform;
            param w_o: [heads, width, d] = xavier_uniform;
            param mix_scores: [heads, softmaxes] = xavier_uniform;
            param mix_weights: [softmaxes, heads] = xavier_uniform;
            let context = x as [batch, kv = seq, d];
            let q = einsum::<[batch, heads, seq, width]>(x, w_q);
            let k = einsum::<[batch, heads, kv, width]>(context, w_k);
            let v = einsum::<[batch, heads, kv, width]>(context, w_v);
            let scores = einsum::<[batch, heads, seq, kv]>(q, k) / sqrt(width);
            let weights = softmax::<kv>(einsum::<[batch, softmaxes, seq, kv]>(scores, mix_scores));
            let weights = einsum::<[batch, heads, seq, kv]>(weights, mix_weights);
            einsum::<[batch, seq, d]>(weights, v, w_o)
        }
    } (x: floats[_, _, 4]);

    heads_that_talk {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
            let z = attention::<2, talking_heads = both, name = both>(x);
            let z = z + attention::<4, kv_heads = 2, mask = causal, position = alibi, talking_heads = before, name = scores>(x);
            let z = z + attention::<2, mask = causal, normalizer = sigmoid, talking_heads = both, name = sigmoid>(x);
            z + attention::<2, mask = padding, softcap = 0.5, talking_heads = after, name = weights>(x, padding = lens)
        }
    } (x: floats[_, _, 4], lens: lens[_]);

    rotated {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = attention::<2, mask = causal, position = rope>(x);
            z + attention::<2, kv_heads = 1, position = rope(500_000), name = slowly>(x)
        }
    } (x: floats[_, _, 4]);

    biased_by_distance {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = attention::<3, mask = causal, position = alibi, name = alibi>(x);
            let z = z + attention::<2, position = rel_pos_bias(8, 4), bidirectional = true, name = both>(x);
            z + attention::<2, mask = causal, position = rel_pos_bias(4, 4), bidirectional = false, name = past>(x)
        }
    } (x: floats[_, _, 6]);

    normed_queries_and_keys {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = attention::<2, kv_heads = 1, qk_norm = rms, position = rope>(x);
            z + attention::<2, qk_norm = l2, scale = 10, name = unit>(x)
        }
    } (x: floats[_, _, 4]);

    capped {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, mask = causal, softcap = 0.5, position = alibi>(x)
        }
    } (x: floats[_, _, 4]);

    scores_of_other_kinds {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = attention::<2, score = dot, name = dot>(x);
            let z = z + attention::<2, score = additive(3), name = additive>(x);
            z + attention::<2, score = bilinear, name = bilinear>(x)
        }
    } (x: floats[_, _, 4]);

    normalizers {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, 20] {
            concat(
                attention::<2, mask = causal, normalizer = softmax1, name = softmax1>(x),
                attention::<2, mask = causal, normalizer = sink, name = sink>(x),
                attention::<2, mask = causal, normalizer = sigmoid, name = sigmoid>(x),
                attention::<2, mask = causal, normalizer = relu, name = relu>(x),
                attention::<2, mask = causal, normalizer = relu(2), name = relu_squared>(x),
            )
        }
    } (x: floats[_, _, 4]);

    sparse_normalizers {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = attention::<2, normalizer = sparsemax, name = sparsemax>(x);
            z + attention::<2, normalizer = entmax15, name = entmax>(x)
        }
    } (x: floats[_, _, 4]);

    of_a_body {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], gate: [batch, seq]) -> [batch, seq, d] {
            attention::<2>(x, gate = gate) {
                param slope: [heads] = ones;
                data gate: [batch, kv_len];
                fn mask(q_idx, kv_idx) { q_idx >= kv_idx || kv_idx - q_idx == 2 }
                fn score(score, b, h, q_idx, kv_idx) { score + gate[b, kv_idx] - slope[h] * abs(q_idx - kv_idx) as f32 }
            }
        }
    } (x: floats[_, _, 4], gate: data[_, _]);

    nobody_to_attend_to {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] {
            attention::<2, mask = padding, normalizer = softmax>(x, padding = lens)
        }
    } (x: floats[_, _, 4], lens: lens[_]);

    of_one_sequence {
        struct M<d = 4>;
        fn forward(x: [seq, d]) -> [seq, d] { attention::<2, mask = causal, position = rope>(x) }
    } (x: floats[_, 4]);
}
