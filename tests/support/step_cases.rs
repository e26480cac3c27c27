//! Models with attention at the steps of a scan.

/// As [`operations!`](crate::operations): of a memory and the inputs of the steps.
#[macro_export]
macro_rules! attends_at_steps {
    ($check:ident) => {
        $check! {
            additive_attention_of_a_gru {
                struct M<d = 3, hidden = 4>;
                fn forward(memory: [batch, src, d], x: [batch, tgt, d], lens: lens[batch]) -> [batch, tgt, d] {
                    let keys = linear::<hidden, bias = false, name = keys>(memory);
                    scan tgt {
                        state h: [batch, d] = tanh(linear::<d, name = start>(mean_pool(memory, lens)));
                        let context = attend::<score = additive(hidden = hidden), mask = padding>(linear::<hidden>(h), keys, memory, padding = lens);
                        let (xr, xz, xn) = split(linear::<{ 3 * d }, name = ih>(concat(x, context)));
                        let (hr, hz, hn) = split(linear::<{ 3 * d }, name = hh>(h));
                        let z = sigmoid(xz + hz);
                        h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                        yield h + context;
                    }
                }
            } (batch: 3, src: 4, tgt: 3) (
                memory: tensor("memory", (batch, src, Const::<3>)), tensor("x", (batch, tgt, Const::<3>)), lens_up_to(batch, src)
            ) reads memory;

            heads_of_a_step {
                struct M<heads = 4, kv_heads = 2, width = 2>;
                fn forward(memory: [batch, src, kv_heads, width], x: [batch, tgt, 8]) -> [batch, tgt, 8] {
                    let y = scan tgt, reverse = true {
                        state h: [batch, 8] = 0.5;
                        let q = rearrange::<[batch, (heads, width)] -> [batch, heads, width]>(linear::<8>(h));
                        let y = attend::<normalizer = sink>(q, memory, tanh(memory));
                        h = tanh(linear::<8>(rearrange::<[batch, (heads, width)]>(y)) + x);
                        yield h;
                    };
                    y + x
                }
            } (batch: 2, src: 3, tgt: 3) (
                memory: tensor("memory", (batch, src, Const::<2>, Const::<2>)), tensor("x", (batch, tgt, Const::<8>))
            ) reads memory;

            a_query_without_a_batch {
                struct M<d = 4>;
                fn forward(memory: [src, d], x: [tgt, d]) -> [tgt, d] {
                    scan tgt {
                        state h: [d] = 0.0;
                        h = attend(x + h, memory, linear::<d>(memory));
                        yield h;
                    }
                }
            } (src: 3, tgt: 4) (memory: tensor("memory", (src, Const::<4>)), tensor("x", (tgt, Const::<4>))) reads memory;

            a_memory_that_is_a_state {
                struct M<d = 4, slots = 3>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    param start: [slots, d] = normal(0.5);
                    scan seq {
                        state memory: [batch, slots, d] = start;
                        let read = attend(linear::<d>(x), memory, memory);
                        memory = tanh(memory + 0.1 * einsum::<[batch, slots, d]>(read, start));
                        yield read;
                    }
                }
            } (batch: 2, seq: 3) (x: tensor("x", (batch, seq, Const::<4>))) reads x;

            sequences_of_a_step {
                struct M<d = 4>;
                fn forward(x: [batch, frames, patches, d]) -> [batch, frames, patches, d] {
                    scan frames {
                        state h: [batch, patches, d] = 0.0;
                        h = attention::<2>(layer_norm(x + h)) + attend::<mask = causal>(x, h, x);
                        yield h;
                    }
                }
            } (batch: 2, frames: 3, patches: 3) (x: tensor("x", (batch, frames, patches, Const::<4>))) reads x;

            weights_of_a_step {
                struct M<d = 4>;
                fn forward(memory: [batch, src, d], x: [batch, tgt, d]) -> [batch, tgt, d] {
                    let (y, weights) = scan tgt {
                        state h: [batch, d] = 0.0;
                        let (read, weights) = attend(x + h, memory, memory);
                        h = tanh(read - h);
                        yield (h, weights);
                    };
                    y * einsum::<[batch, tgt, d]>(weights, memory)
                }
            } (batch: 2, src: 3, tgt: 3) (memory: tensor("memory", (batch, src, Const::<4>)), tensor("x", (batch, tgt, Const::<4>))) reads memory;

            by_hand {
                struct M<d = 3, hidden = 4>;
                fn forward(memory: [batch, src, d], x: [batch, tgt, d], lens: lens[batch]) -> [batch, tgt, d] {
                    param v: [hidden] = normal(0.5);
                    let keys = linear::<hidden, bias = false, name = keys>(memory);
                    let (y, weights) = scan tgt {
                        state h: [batch, d] = 0.0;
                        let scores = einsum::<[batch, src]>(tanh(keys + linear::<hidden>(h)), v);
                        let weights = softmax::<src>(scores, lens);
                        let context = einsum::<[batch, d]>(weights, memory);
                        h = tanh(linear::<d, name = next>(concat(x, context)) + h);
                        yield (h, weights);
                    };
                    y * einsum::<[batch, tgt, d]>(weights, memory)
                }
            } (batch: 3, src: 4, tgt: 3) (
                memory: tensor("memory", (batch, src, Const::<3>)), tensor("x", (batch, tgt, Const::<3>)), lens_up_to(batch, src)
            ) reads memory;

            one_query_outside_of_a_scan {
                struct M<d = 4>;
                fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] {
                    param query: [d] = normal(0.5);
                    let pooled = attend::<mask = padding>(expand::<[batch, d]>(query), linear::<d>(x), x, padding = lens);
                    pooled + attend(pooled, x, x)
                }
            } (batch: 3, seq: 4) (x: tensor("x", (batch, seq, Const::<4>)), lens_up_to(batch, seq)) reads x;
        }
    };
}
