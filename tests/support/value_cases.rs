//! Models whose attentions read values that have a gradient.

/// As [`operations!`](crate::operations): values of constant axes, of sequences, of queries, keys and pairs, read once, several times, by
/// places and by data.
#[macro_export]
macro_rules! body_values {
    ($check:ident) => {
        $check! {
            a_table_of_all_layers {
                struct M<d = 4, heads = 2, buckets = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param table: [heads, buckets] = normal(0.5);
                    let bias = 2 * table;
                    let y = attention::<heads, d, mask = causal>(x, table = bias) {
                        data table: [heads, 5];
                        fn score(score, h, q_idx, kv_idx) { score + table[h, min(abs(q_idx - kv_idx), 4)] }
                    };
                    attend(x, linear::<d>(y), y, table = bias) {
                        data table: [2, 5];
                        fn score(score, q_idx, kv_idx) { score * table[1, (q_idx + 2 * kv_idx) % 5] }
                    }
                }
            } (batch: 2, seq: 7) (x: tensor("x", (batch, seq, Const::<4>))) reads x;

            a_bias_of_pairs {
                struct M<d = 4, heads = 2>;
                fn forward(x: [batch, seq, d], pairs: [batch, heads, seq, seq]) -> [batch, seq, d] {
                    param gain: [heads] = ones;
                    let bias = einsum::<[batch, heads, seq, keys]>(tanh(pairs) as [batch, heads, seq, keys = seq], gain);
                    let mut x = x;
                    repeat 2 {
                        x += attention::<heads>(x, bias = bias) {
                            data bias: [batch, heads, q_len, kv_len];
                            fn score(score, b, h, q_idx, kv_idx) { score + bias[b, h, q_idx, kv_idx] }
                        };
                    }
                    x
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<4>)), tensor("pairs", (batch, Const::<2>, seq, seq))) reads x;

            edges_of_a_graph {
                struct M<d = 4, heads = 2>;
                fn forward(x: [batch, seq, d], edges: [batch, seq, seq, 3]) -> [batch, seq, d] {
                    let edges = linear::<heads>(edges);
                    attention::<heads, kv_heads = 1, mask = sliding_window(3)>(x, edge = edges, back = edges) {
                        param w: [heads] = ones;
                        data edge: [batch, q_len, kv_len, heads];
                        data back: [batch, kv_len, q_len, heads];
                        fn score(score, b, h, q_idx, kv_idx) {
                            score * (1.0 + edge[b, q_idx, kv_idx, h]) + w[h] * back[b, kv_idx, q_idx, 1] + edge[b, q_idx, q_idx, 0]
                        }
                    }
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<4>)), tensor("edges", (batch, seq, seq, Const::<3>))) reads x;

            numbers_of_sequences_queries_and_keys {
                struct M<d = 4, heads = 2>;
                fn forward(x: [batch, seq, d], y: [batch, kv, 3]) -> [batch, seq, d] {
                    let slopes = exp(linear::<heads>(mean::<seq>(x)));
                    let near = rearrange::<[batch, (heads, table)] -> [heads, batch, table]>(linear::<10>(mean::<seq>(x)));
                    attention::<heads>(x, context = y, slopes = slopes, near = near, of_query = mean::<d>(x), of_key = sum::<3>(tanh(y))) {
                        data slopes: [batch, heads];
                        data near: [heads, batch, 5];
                        data of_query: [batch, q_len];
                        data of_key: [batch, kv_len];
                        fn score(score, b, h, q_idx, kv_idx) {
                            let far = slopes[b, h] * abs(q_idx - kv_idx) as f32;
                            score * exp(of_query[b, q_idx]) - far + of_key[b, kv_idx] + near[h, b, clamp(q_idx - kv_idx + 2, 0, 4)]
                        }
                    }
                }
            } (batch: 2, seq: 5, kv: 7) (x: tensor("x", (batch, seq, Const::<4>)), tensor("y", (batch, kv, Const::<3>))) reads x;

            rows_by_distance {
                struct M<d = 4, heads = 2>;
                fn forward(x: [seq, d]) -> [seq, d] {
                    let far = linear::<heads>(tanh(x));
                    let q = rearrange::<[seq, (heads, w)] -> [seq, heads, w]>(x);
                    rearrange::<[seq, (heads, w)]>(attend::<mask = causal>(q, q, q, far = far) {
                        data far: [q_len, heads];
                        fn score(score, h, q_idx, kv_idx) { score + far[max(q_idx - kv_idx, 0), h] }
                    })
                }
            } (seq: 6) (x: tensor("x", (seq, Const::<4>))) reads x;

            without_a_batch {
                struct M<d = 4>;
                fn forward(x: [seq, d], of: ids[seq]) -> [seq, d] {
                    let y = attention::<2>(x, of = of, own = x, all = linear::<3>(tanh(x))) {
                        data of: ids[batch, kv_len];
                        data own: [batch, kv_len, 4];
                        data all: [q_len, 3];
                        fn score(score, b, q_idx, kv_idx) {
                            score + own[b, q_idx, 0] * all[kv_idx, 1] + all[q_idx, clamp(of[b, kv_idx], 0, 2)]
                        }
                    };
                    attend(y, x, x, own = einsum::<[seq, keys]>(x, y as [keys = seq, d])) {
                        data own: [q_len, kv_len];
                        fn score(score, q_idx, kv_idx) { if kv_idx > q_idx { score } else { score + own[q_idx, kv_idx] } }
                        fn mask(q_idx, kv_idx) { kv_idx > q_idx }
                    }
                }
            } (seq: 6) (x: tensor("x", (seq, Const::<4>)), ids((seq,), 4)) reads x;
        }
    };
}
