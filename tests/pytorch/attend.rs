//! Attention to given queries, keys and values.

cases! {
    queries_keys_and_values {
        struct M<heads = 3, d = 5, e = 2>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, kv, d], v: [batch, heads, kv, e]) -> [batch, heads, seq, e] {
            attend(q, k, v)
        }
    } (q: floats[_, 3, _, 5], k: floats[_, 3, _, 5], v: floats[_, 3, _, 2]);

    grouped_queries {
        struct M<heads = 4, kv_heads = 2, d = 3>;
        fn forward(q: [batch, seq, heads, d], k: [batch, seq, kv_heads, d], v: [batch, seq, kv_heads, d]) -> [batch, seq, heads, d] {
            attend::<mask = causal>(q, k, v)
        }
    } (q: floats[_, _, 4, 3], k: floats[_, _, 2, 3], v: floats[_, _, 2, 3]);

    one_head_of_keys {
        struct M<groups = 4, d = 3>;
        fn forward(q: [batch, groups, seq, d], k: [batch, kv, d], v: [batch, kv, d]) -> [batch, groups, seq, d] {
            attend::<heads = groups, scale = 0.7>(q, k, v)
        }
    } (q: floats[_, 4, _, 3], k: floats[_, _, 3], v: floats[_, _, 3]);

    without_heads {
        struct M<d = 3, e = 5>;
        fn forward(q: [seq, d], k: [kv, d], v: [kv, e]) -> [seq, e] { attend(q, k, v) }
    } (q: floats[_, 3], k: floats[_, 3], v: floats[_, 5]);

    valid_keys {
        struct M<heads = 3, d = 5, e = 2>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, kv, d], v: [batch, heads, kv, e], lens: lens[batch]) -> [batch, heads, seq, e] {
            attend::<mask = padding>(q, k, v, padding = lens)
        }
    } (q: floats[_, 3, _, 5], k: floats[_, 3, _, 5], v: floats[_, 3, _, 2], lens: lens[_]);

    neighborhoods_of_natten {
        struct M<heads = 2, d = 3>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, seq, d], v: [batch, heads, seq, d]) -> [batch, heads, seq, d] {
            attend::<grid = [4, 5], mask = neighborhood(3)>(q, k, v)
        }
    } (q: floats[_, 2, _, 3], k: floats[_, 2, _, 3], v: floats[_, 2, _, 3]);

    weights_and_sums {
        struct M<heads = 4, kv_heads = 2, d = 3>;
        fn forward(q: [batch, heads, seq, d], k: [batch, kv_heads, kv, d], v: [batch, kv_heads, kv, d]) -> ([batch, heads, seq, d], [batch, heads, kv]) {
            let (y, weights, lse) = attend(q, k, v);
            (y, sum::<seq>(weights * weights * lse))
        }
    } (q: floats[_, 4, _, 3], k: floats[_, 2, _, 3], v: floats[_, 2, _, 3]);

    weights_of_multi_head_attention {
        struct M<heads = 2, d = 6>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, heads, seq, seq]) {
            let (y, weights) = attention::<heads, d>(x);
            (y, weights)
        }
    } (x: floats[_, _, 6]);

    rotated_vectors {
        struct M<heads = 2, d = 6>;
        fn forward(x: [batch, heads, seq, d], at: ids[batch, seq]) -> [batch, heads, seq, d] {
            rope(x) + rope::<theta = 100.0, dims = 4, interleaved = true>(x, at)
        }
    } (x: floats[_, 2, _, 6], at: ids[_, _]);

    a_bias_of_all_layers {
        struct M<d = 4, heads = 2, width = 2>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param table: [8, heads] = normal(1.0);
            let table = tanh(table);
            let mut x = x;
            repeat 2 {
                let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d, bias = false>(x));
                let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(x);
                let y = attend(q, k, k, table = table) {
                    data table: [8, heads];
                    fn score(score, h, q_idx, kv_idx) { score + table[clamp(kv_idx - q_idx + 4, 0, 7), h] }
                };
                x += rearrange::<[batch, seq, (heads, width)]>(y);
            }
            x
        }
    } (x: floats[_, _, 4]);

    a_bias_of_pairs {
        struct M<heads = 2, d = 3, pair = 4>;
        fn forward(
            q: [batch, heads, seq, d],
            k: [batch, heads, seq, d],
            v: [batch, heads, seq, d],
            pairs: [batch, seq, seq, pair],
        ) -> [batch, heads, seq, d] {
            let bias = linear::<heads, bias = false>(layer_norm::<gain = false, bias = false>(pairs));
            attend(q, k, v, bias = bias) {
                data bias: [batch, q_len, kv_len, heads];
                fn score(score, b, h, q_idx, kv_idx) { score + bias[b, q_idx, kv_idx, h] }
            }
        }
    } (q: floats[_, 2, _, 3], k: floats[_, 2, _, 3], v: floats[_, 2, _, 3], pairs: floats[_, _, _, 4]);

    relative_keys {
        struct M<heads = 2, d = 4, rows = 7>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, kv, d], v: [batch, heads, kv, d]) -> [batch, heads, seq, d] {
            param table: [rows, d] = normal(1.0);
            attend(q, k, v) {
                fn score(score, q_idx, kv_idx) { score + 0.5 * dot(q, table[clamp(kv_idx - q_idx + 3, 0, 6)]) }
            }
        }
    } (q: floats[_, 2, _, 4], k: floats[_, 2, _, 4], v: floats[_, 2, _, 4]);

    relative_positions_of_transformer_xl {
        struct M<heads = 2, d = 3>;
        fn forward(
            q: [batch, heads, seq, d],
            k: [batch, heads, seq, d],
            v: [batch, heads, seq, d],
            r: [seq, 4],
        ) -> [batch, heads, seq, d] {
            param u: [heads, d] = zeros;
            param s: [heads, d] = zeros;
            let r = rearrange::<[seq, (heads, d)] -> [seq, heads, d]>(linear::<6, bias = false>(r));
            attend::<mask = causal>(q + u, k, v) {
                fn score(score, h, q_idx, kv_idx) { score + dot(q + s, r[max(q_idx - kv_idx, 0), h]) / sqrt(head_dim as f32) }
            }
        }
    } (q: floats[_, 2, _, 3], k: floats[_, 2, _, 3], v: floats[_, 2, _, 3], r: floats[_, 4]);
}
