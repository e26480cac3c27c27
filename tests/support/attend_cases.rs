//! Models with `attend`.

/// As [`operations!`](crate::operations): of operands that are computed from one input.
#[macro_export]
macro_rules! attends {
    ($check:ident) => {
        $check! {
            attends_of_projections {
                struct M<d = 8, heads = 2, width = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
                    let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8, bias = false>(x));
                    let v = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
                    linear::<d>(rearrange::<[batch, seq, (heads, width)]>(attend::<mask = causal, position = rope>(q, k, v)))
                }
            } (batch: 3, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_of_fewer_keys {
                struct M<d = 8, heads = 4, kv_heads = 2, width = 4>;
                fn forward(x: [batch, seq, d]) -> [batch, heads, seq, width] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<16>(x));
                    let k = rearrange::<[batch, seq, (kv_heads, width)] -> [batch, kv_heads, seq, width]>(linear::<8>(tanh(x)));
                    let v = rearrange::<[batch, seq, (kv_heads, width)] -> [batch, kv_heads, seq, width]>(linear::<8>(x));
                    attend::<mask = sliding_window(2), qk_norm = rms, normalizer = sink>(q, k, v)
                }
            } (batch: 2, seq: 7) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_of_one_value {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = x * x;
                    y * attend(y, y, y)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_of_an_input {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attend::<mask = causal>(x, linear::<d>(x), x) }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_of_bilinear_scores {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let raw = attend::<mask = causal, score = bilinear>(x, linear::<d>(x), x);
                    raw + attend::<score = bilinear, qk_norm = rms>(tanh(x), x, x)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_in_rounds {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let source = tanh(x);
                    repeat 2 {
                        x += attend::<mask = causal>(linear::<3>(x), linear::<3>(source), source);
                        x += attend(x, source, linear::<d>(x));
                    }
                    x
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_of_heads_that_talk {
                struct M<d = 8, heads = 4, kv_heads = 2, width = 2>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<8>(x));
                    let k = rearrange::<[batch, seq, (kv_heads, width)] -> [batch, kv_heads, seq, width]>(linear::<4>(x));
                    let y = attend::<mask = causal, position = rope, talking_heads = both, normalizer = sparsemax>(q, k, k);
                    let y = rearrange::<[batch, heads, seq, width] -> [batch, seq, (heads, width)]>(y);
                    attention::<heads, mask = sliding_window(2), talking_heads = before, normalizer = sink>(y)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            attends_by_place {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    attend(x, x, linear::<d>(x)) {
                        param w: [8] = normal(0.5);
                        fn score(q_idx, kv_idx) { w[min(abs(q_idx - kv_idx), 7)] }
                    }
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;
        }
    };
}

/// The same with the weights of an attention, or the logarithms of their sums.
#[macro_export]
macro_rules! attention_results {
    ($check:ident) => {
        $check! {
            all_three_results {
                struct M<d = 8, heads = 4, kv_heads = 2, width = 2>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<8>(x));
                    let k = rearrange::<[batch, seq, (kv_heads, width)] -> [batch, seq, kv_heads, width]>(linear::<4>(x));
                    let v = rearrange::<[batch, seq, (kv_heads, width)] -> [batch, seq, kv_heads, width]>(linear::<4>(x));
                    let (y, weights, lse) = attend::<mask = causal, normalizer = sink>(q, k, v);
                    let spread = sum::<kv>(weights * weights);
                    let y = rearrange::<[batch, seq, (heads, width)]>(y);
                    y + mean::<heads>(spread + lse * lse)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            weights_alone {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, seq] {
                    let (_y, weights) = attend::<mask = causal>(linear::<3>(x), linear::<3>(tanh(x)), x);
                    exp(weights)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            logarithms_alone {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = x * x;
                    let (attended, _weights, lse) = attend::<normalizer = softmax1>(y, y, y);
                    attended * lse
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            returned_weights {
                struct M<d = 8, heads = 2>;
                fn forward(x: [batch, seq, d]) -> [batch, heads, seq, seq] {
                    let (_y, weights) = attention::<heads, mask = sliding_window(2)>(x);
                    weights
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            results_of_layers_in_rounds {
                struct M<d = 8, heads = 2>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 2 {
                        let (y, weights, lse) = attention::<heads, mask = causal, position = rope>(x);
                        x += y + mean::<[heads, kv]>(sin(weights)) + mean::<heads>(lse);
                    }
                    x
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;

            weights_of_a_context {
                struct M<d = 8, heads = 2>;
                fn forward(x: [batch, seq, d], context: [batch, kv, d]) -> [batch, seq, d] {
                    let (y, weights) = attention::<heads, d, normalizer = entmax15>(x, context = context);
                    y + sum::<[heads, kv]>(weights * weights)
                }
            } (batch: 2, seq: 5, kv: 3) (x: tensor("x", (batch, seq, Const::<8>)), tensor("context", (batch, kv, Const::<8>))) reads x;

            weights_of_steps {
                struct M<d = 4>;
                fn forward(memory: [batch, src, d], x: [batch, tgt, d]) -> [batch, tgt, d] {
                    scan tgt {
                        state coverage: [batch, src] = 0.0;
                        let (y, weights, lse) = attend(x, memory * (1 + tanh(coverage)), memory);
                        coverage = coverage + weights;
                        yield y * lse + mean::<src>(coverage * coverage);
                    }
                }
            } (batch: 2, src: 3, tgt: 4) (memory: tensor("memory", (batch, src, Const::<4>)), tensor("x", (batch, tgt, Const::<4>))) reads memory;

            each_weight_by_itself {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let (y, weights) = attend::<normalizer = sigmoid, mask = causal>(x, linear::<d>(x), x);
                    y + logsumexp::<kv>(weights)
                }
            } (batch: 2, seq: 5) (x: tensor("x", (batch, seq, Const::<8>))) reads x;
        }
    };
}
