//! `dot` is the product of all vectors with all rows, taken before, and read as data: both spellings have the same bits.

use super::*;

macro_rules! same {
    ($($name:ident { $($by_dot:tt)* } { $($by_einsum:tt)* } ($($axis:expr),*) ($($input:expr),*);)*) => {$(
        #[test]
        fn $name() {
            mod dot {
                use super::*;
                model! { $($by_dot)* }
            }
            mod einsum {
                use super::*;
                model! { $($by_einsum)* }
            }
            macro_rules! outcome {
                ($M:ty) => {{
                    let mut model = Cpu::default().build_module::<$M, f64>();
                    scatter(&mut model);
                    let (q, k, v) = ($($input),*);
                    let q: Tensor<_, f64, Cpu> = q;
                    let ran: Backpropagated<f64> = backpropagate(model.forward((q.clone().leaky_traced(), k, v)));
                    let outcome: Outcome = ran.input("q", &q).parameters(&model);
                    outcome
                }};
            }
            let [found, expected] = [outcome!(dot::M), outcome!(einsum::M)];
            for ((name, found), (_, expected)) in found.all().zip(expected.all()) {
                assert_eq!(found, expected, "{name}");
            }
            assert_eq!(found.all().count(), expected.all().count());
            assert_eq!(dot::M::activation_bytes($($axis),*), einsum::M::activation_bytes($($axis),*));
            assert_eq!(dot::M::flops($($axis),*), einsum::M::flops($($axis),*));
        }
    )*};
}

same! {
    a_table_of_queries {
        pub struct M<heads = 2, d = 4, rows = 7>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, seq, d], v: [batch, heads, seq, d]) -> [batch, heads, seq, d] {
            param table: [rows, d] = normal(1.0);
            attend(q, k, v) {
                fn score(score, q_idx, kv_idx) {
                    let far = clamp(kv_idx - q_idx, -3, 3);
                    score + dot(q, table[far + 3]) - 0.1 * dot(q, table[3 - far])
                }
            }
        }
    } {
        pub struct M<heads = 2, d = 4, rows = 7>;
        fn forward(q: [batch, heads, seq, d], k: [batch, heads, seq, d], v: [batch, heads, seq, d]) -> [batch, heads, seq, d] {
            param table: [rows, d] = normal(1.0);
            attend(q, k, v, near = einsum::<[batch, heads, seq, rows]>(q, table)) {
                data near: [batch, heads, q_len, 7];
                fn score(score, b, h, q_idx, kv_idx) {
                    let far = clamp(kv_idx - q_idx, -3, 3);
                    score + near[b, h, q_idx, far + 3] - 0.1 * near[b, h, q_idx, 3 - far]
                }
            }
        }
    } (2, 5) (tensor("q", (2, Const::<2>, 5, Const::<4>)), tensor("k", (2, Const::<2>, 5, Const::<4>)), tensor("v", (2, Const::<2>, 5, Const::<4>)));

    tables_of_heads {
        pub struct M<heads = 2, d = 4, rows = 6>;
        fn forward(q: [batch, seq, heads, d], k: [batch, seq, heads, d], v: [batch, seq, heads, d]) -> [batch, seq, heads, d] {
            param table: [heads, rows, d] = normal(1.0);
            let rows = tanh(table);
            attend::<mask = causal>(q, k, v) {
                fn score(score, h, q_idx, kv_idx) { score + dot(k, rows[h, clamp(q_idx - kv_idx, 0, 5)]) }
            }
        }
    } {
        pub struct M<heads = 2, d = 4, rows = 6>;
        fn forward(q: [batch, seq, heads, d], k: [batch, seq, heads, d], v: [batch, seq, heads, d]) -> [batch, seq, heads, d] {
            param table: [heads, rows, d] = normal(1.0);
            let rows = tanh(table);
            attend::<mask = causal>(q, k, v, near = einsum::<[batch, seq, heads, rows]>(k, rows)) {
                data near: [batch, kv_len, heads, 6];
                fn score(score, b, h, q_idx, kv_idx) { score + near[b, kv_idx, h, clamp(q_idx - kv_idx, 0, 5)] }
            }
        }
    } (2, 5) (tensor("q", (2, 5, Const::<2>, Const::<4>)), tensor("k", (2, 5, Const::<2>, Const::<4>)), tensor("v", (2, 5, Const::<2>, Const::<4>)));

    keys_of_groups {
        pub struct M<heads = 4, kv_heads = 2, d = 3, rows = 6>;
        fn forward(q: [batch, seq, heads, d], k: [batch, kv, kv_heads, d], v: [batch, kv, kv_heads, d]) -> [batch, seq, heads, d] {
            param table: [rows, d] = normal(1.0);
            param of_heads: [heads, rows, d] = normal(1.0);
            attend(q, k, v) {
                fn score(score, h, q_idx, kv_idx) {
                    let far = clamp(q_idx - kv_idx + 3, 0, 5);
                    score + dot(k, table[far]) + dot(k, of_heads[h, far])
                }
            }
        }
    } {
        pub struct M<heads = 4, kv_heads = 2, d = 3, rows = 6>;
        fn forward(q: [batch, seq, heads, d], k: [batch, kv, kv_heads, d], v: [batch, kv, kv_heads, d]) -> [batch, seq, heads, d] {
            param table: [rows, d] = normal(1.0);
            param of_heads: [heads, rows, d] = normal(1.0);
            let near = einsum::<[batch, kv, kv_heads, rows]>(k, table);
            let of_heads = einsum::<[batch, kv, kv_heads, heads, rows]>(k, of_heads);
            attend(q, k, v, near = near, of_heads = of_heads) {
                data near: [batch, kv_len, 2, 6];
                data of_heads: [batch, kv_len, 2, heads, 6];
                fn score(score, b, h, q_idx, kv_idx) {
                    let far = clamp(q_idx - kv_idx + 3, 0, 5);
                    score + near[b, kv_idx, h / 2, far] + of_heads[b, kv_idx, h / 2, h, far]
                }
            }
        }
    } (2, 5, 7) (tensor("q", (2, 5, Const::<4>, Const::<3>)), tensor("k", (2, 7, Const::<2>, Const::<3>)), tensor("v", (2, 7, Const::<2>, Const::<3>)));
}
