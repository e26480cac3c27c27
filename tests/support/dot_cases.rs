//! Models whose attentions multiply queries and keys with rows of tables.

/// Hands all of them to the macro `check`, as [`body_values`](crate::body_values) does.
#[macro_export]
macro_rules! dots {
    ($check:ident) => {
        $check! {
            relative_keys {
                struct M<heads = 2, d = 4, rows = 7>;
                fn forward(q: [batch, heads, seq, d], k: [batch, heads, kv, d], v: [batch, heads, kv, d]) -> [batch, heads, seq, d] {
                    param table: [rows, d] = normal(1.0);
                    attend(q, k, v) {
                        fn score(score, q_idx, kv_idx) { score + dot(q, table[clamp(kv_idx - q_idx, -3, 3) + 3]) / sqrt(head_dim as f32) }
                    }
                }
            } (batch: 2, seq: 5, kv: 6) (
                q: tensor("q", (batch, Const::<2>, seq, Const::<4>)), tensor("k", (batch, Const::<2>, kv, Const::<4>)),
                tensor("v", (batch, Const::<2>, kv, Const::<4>))
            ) reads q;

            queries_and_keys {
                struct M<heads = 4, kv_heads = 2, d = 3, w = 2, rows = 5>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, heads, w] {
                    param of_head: [heads, rows, w] = normal(1.0);
                    let q = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<8>(x));
                    let k = rearrange::<[batch, seq, (kv_heads, w)] -> [batch, seq, kv_heads, w]>(linear::<4>(x));
                    attend::<mask = causal>(q, k, k) {
                        param gain: [heads] = ones;
                        fn score(score, h, q_idx, kv_idx) {
                            let far = clamp(q_idx - kv_idx, 0, 4);
                            score + gain[h] * dot(q, of_head[h, far]) + 0.5 * dot(k, of_head[h, far]) + dot(q, of_head[h, 4 - far])
                        }
                    }
                }
            } (batch: 2, seq: 6) (x: tensor("x", (batch, seq, Const::<3>))) reads x;

            relative_positions {
                struct M<heads = 2, d = 3>;
                fn forward(x: [batch, seq, 6], r: [seq, 4]) -> [batch, seq, heads, d] {
                    param u: [heads, d] = normal(1.0);
                    param s: [heads, d] = normal(1.0);
                    let r = rearrange::<[seq, (heads, d)] -> [seq, heads, d]>(linear::<6, bias = false>(r));
                    let mut x = x;
                    repeat 2 {
                        let q = rearrange::<[batch, seq, (heads, d)] -> [batch, seq, heads, d]>(linear::<6>(x));
                        let k = rearrange::<[batch, seq, (heads, d)] -> [batch, seq, heads, d]>(linear::<6>(x));
                        let y = attend::<mask = causal>(q + u, k, k) {
                            fn score(score, h, q_idx, kv_idx) { score + 0.5 * dot(q + s, r[max(q_idx - kv_idx, 0), h]) }
                        };
                        x += rearrange::<[batch, seq, (heads, d)]>(y);
                    }
                    rearrange::<[batch, seq, (heads, d)] -> [batch, seq, heads, d]>(x)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<6>)), tensor("r", (seq, Const::<4>))) reads x;

            rows_and_columns {
                struct M<d = 4, rows = 5, cols = 7>;
                fn forward(x: [seq, d]) -> [seq, d] {
                    param vertical: [rows, d] = normal(1.0);
                    param pairs: [rows, cols, d] = normal(1.0);
                    let y = tanh(linear::<d>(x));
                    attend(linear::<d>(x), y, y) {
                        fn score(score, q_idx, kv_idx) {
                            let down = kv_idx / 4 - q_idx / 4 + 2;
                            score * (1.0 + dot(q, vertical[down])) + dot(k, pairs[down, kv_idx % 4 - q_idx % 4 + 3])
                        }
                    }
                }
            } (seq: 12) (x: tensor("x", (seq, Const::<4>))) reads x;

            one_query {
                struct M<heads = 2, d = 4>;
                fn forward(q: [batch, heads, d], x: [batch, kv, d], tables: [batch, 3, d]) -> [batch, heads, d] {
                    let tables = 2 * tables;
                    attend(q, x, x) {
                        fn score(score, b, kv_idx) { score + dot(q, tables[b, kv_idx % 3]) - dot(x, tables[b, min(kv_idx, 2)]) }
                    }
                }
            } (batch: 2, kv: 5) (
                q: tensor("q", (batch, Const::<2>, Const::<4>)), tensor("x", (batch, kv, Const::<4>)), tensor("tables", (batch, Const::<3>, Const::<4>))
            ) reads q;

            weights_of_rows {
                struct M<heads = 2, d = 2>;
                fn forward(x: [batch, seq, heads, d]) -> [batch, seq, heads, d] {
                    param table: [3, d] = normal(1.0);
                    attend(x, x, x) {
                        fn normalize(score, q_idx, kv_idx) { sigmoid(score + dot(q, table[(q_idx + kv_idx) % 3]) - dot(2 * k, table[1])) }
                    }
                }
            } (batch: 1, seq: 4) (x: tensor("x", (batch, seq, Const::<2>, Const::<2>))) reads x;
        }
    };
}
