//! Attentions of every kind, each of which is the peak of a model.

use super::*;

exact! {
    plain {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<2>(x) }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    unbatched_input {
        struct M<d = 8>;
        fn forward(x: [seq, d]) -> [seq, d] { attention::<2, bias = false>(tanh(x)) }
    } (seq: 5) (x: tensor::<_, E>("x", (seq, Const::<8>)));

    grouped_heads {
        struct M<d = 12>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 6, kv_heads = 2, head_dim = 4, value_head_dim = 5, mask = causal>(tanh(x))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<12>)));

    across_sequences {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, 6]) -> [batch, q, d] {
            attention::<2, mask = causal(lower_right), bias = [k, v]>(tanh(x), context = gelu(y))
        }
    } (batch: 2, q: 5, k: 3) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<6>)));

    values_of_their_own {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, 6], z: [batch, k, 5]) -> [batch, q, d] {
            attention::<2, mask = causal(lower_right), bias = [k, v]>(tanh(x), context = gelu(y), values = tanh(z))
        }
    } (batch: 2, q: 5, k: 3) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<6>)), tensor::<_, E>("z", (batch, k, Const::<5>)));

    one_value_three_times {
        struct M<d = 8>;
        fn forward(x: [batch, q, d]) -> [batch, q, d] {
            let y = tanh(x);
            attention::<2>(y, context = y, values = y)
        }
    } (batch: 2, q: 5) (x: tensor::<_, E>("x", (batch, q, Const::<8>)));

    rotated {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<2, position = rope>(tanh(x)) }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    normalised_and_rotated {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = attention::<heads = 4, kv_heads = 2, qk_norm = rms, position = rope, softcap = 2>(tanh(x));
            y + attention::<2, qk_norm = l2, scale = 5>(y)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    additive {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<2, score = additive(hidden = 3)>(tanh(x)) }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    additive_with_a_bias {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, score = additive(hidden = 3), mask = causal>(tanh(x)) {
                param slope: [heads] = ones;
                fn score(score, h, q_idx, kv_idx) { score - slope[h] * abs(q_idx - kv_idx) as f32 }
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    bilinear {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 4, kv_heads = 2, score = bilinear, mask = causal>(tanh(x))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    relative_bias {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, d]) -> [batch, q, d] {
            attention::<2, position = rel_pos_bias(4, 6)>(tanh(x), context = y)
        }
    } (batch: 2, q: 5, k: 3) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<8>)));

    relative_bias_of_one_sequence {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, position = rel_pos_bias(4, 6), normalizer = sigmoid>(attention::<2, position = alibi>(tanh(x)))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    sinks {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<2, normalizer = sink, mask = causal>(attention::<2, normalizer = softmax1>(tanh(x)))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    sparse {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, d]) -> [batch, q, d] {
            attention::<2, normalizer = sparsemax, value_head_dim = 7>(tanh(x), context = y)
        }
    } (batch: 2, q: 5, k: 3) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<8>)));

    less_sparse {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            attention::<heads = 4, kv_heads = 1, normalizer = entmax15, mask = causal>(tanh(x))
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)));

    masked_by_data {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d], lens: lens[batch], ids: ids[batch, seq]) -> [batch, seq, d] {
            attention::<2, mask = (document | sliding_window(2)) & padding, dropout = 0.25>(tanh(x), padding = lens, document = ids)
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)), lens_up_to(batch, seq), ids((batch, seq), 3));

    a_body_that_learns {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d], depth: [batch, seq]) -> [batch, seq, d] {
            attention::<2>(tanh(x), depth = depth) {
                param slope: [heads, 3] = ones;
                param width: [5] = ones;
                param far: [heads, 4] = ones;
                data depth: [batch, kv_len];
                fn score(score, b, h, q_idx, kv_idx) {
                    let near = far[h, min(abs(q_idx - kv_idx), 3)];
                    score * width[kv_idx % 5] + slope[h, q_idx % 3] * depth[b, kv_idx] + near
                }
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>)), tensor::<_, E>("depth", (batch, seq)));
}

/// A single layer of `attention!`.
mod alone {
    use super::*;
    use attn::attention;

    attention! {
        struct Plain<heads = 2, d_model = 8>;
        struct Everything<heads = 4, kv_heads = 2, d_model = 8, qk_norm = rms, position = rel_pos_bias(4, 6), mask = causal, dropout = 0.5>;
        struct Cross<heads = 2, d_model = 8, d_context = 6, normalizer = entmax15, position = alibi>;
        struct Places<heads = 2, d_model = 8, d_context = 6> {
            param near: [heads, 3] = normal(std = 0.5);
            fn score(h, q_idx, kv_idx) { near[h, min(abs(q_idx - kv_idx), 2)] }
        }
    }

    macro_rules! check {
        ($($name:ident: $Layer:ident of |$batch:ident, $q:ident, $k:ident| $input:expr;)*) => {$(
            #[test]
            fn $name() {
                fn check<E: Element>()
                where
                    Cpu: Backend<E>,
                {
                    let mut layer = Cpu::default().build_module::<$Layer, E>();
                    for sizes in sizes() {
                        let [$batch, $q, $k] = sizes;
                        let promised = $Layer::activation_bytes($batch, $q, $k) / size_of::<f32>() * size_of::<E>();
                        let input = $input;
                        let taken = peak::<E, _>(|| layer.forward_mut(input));
                        assert_eq!(taken, promised, "{sizes:?}");
                    }
                }
                let _alone = super::super::alone();
                in_threads(|| {
                    check::<f32>();
                    check::<f64>();
                });
            }
        )*};
    }

    /// For a single sequence there are as many keys as queries.
    fn x<E: Element>(
        batch: usize,
        len: usize,
    ) -> Tensor<(usize, usize, Const<8>), E, Cpu, OwnedTape<E, Cpu>>
    where
        Cpu: Backend<E>,
    {
        tensor("x", (batch, len, Const)).leaky_traced()
    }

    check! {
        plain: Plain of |batch, q, k| { if q != k { continue; } x::<E>(batch, q) };
        everything: Everything of |batch, q, k| { if q != k { continue; } x::<E>(batch, q) };
        places: Places of |batch, q, k| (x::<E>(batch, q), tensor::<_, E>("y", (batch, k, Const::<6>)));
        cross: Cross of |batch, q, k| (x::<E>(batch, q), tensor::<_, E>("y", (batch, k, Const::<6>)));
    }
}
