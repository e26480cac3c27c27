//! Models whose graphs have every form. The notation is that of [`cases`](crate::cases).

/// Graphs of every form: values that are read twice, swapped, returned from loops, or returned unchanged.
#[macro_export]
macro_rules! graphs {
    ($claim:ident) => {
        $claim! {
            a_sum_of_a_value_with_itself {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    let z = y + y;
                    z + x + x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_product_of_a_value_with_itself {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    y * y + x * x - y
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_gradient_with_two_owners {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    let z = y * 2;
                    gelu(y + z) - layer_norm(z + y)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_sequence_that_is_its_own_context {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    attention::<2>(y, context = y) + attention::<2, name = of_input>(x, context = x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<8>))) reads x;

            queries_that_are_only_counted {
                struct M<d = 8>;
                fn forward(x: [batch, q, d], y: [batch, k, d]) -> [batch, q, d] {
                    attention::<2>(layer_norm(x), context = layer_norm(y)) {
                        param rate: [heads] = 0.5;
                        fn score(h, q_idx, kv_idx) { -exp(rate[h]) * abs(q_idx - kv_idx) as f32 }
                    }
                }
            } (batch: 2, q: 3, k: 5) (
                x: tensor::<_, E>("x", (batch, q, Const::<8>)),
                tensor::<_, E>("y", (batch, k, Const::<8>))
            ) reads x;

            a_variable_that_becomes_its_own_attention {
                struct M<d = 8>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut y = tanh(x);
                    y = attention::<2>(y, context = y);
                    gelu(y)
                }
            } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<8>))) reads x;

            a_memory_that_every_round_reads {
                struct M<d = 8>;
                fn forward(x: [batch, q, d], y: [batch, k, d]) -> [batch, q, d] {
                    let memory = layer_norm(y);
                    let bias = linear::<d>(x);
                    let mut x = x;
                    repeat 3 {
                        x = layer_norm(x + attention::<2>(x, context = memory));
                        x = x * bias + bias;
                    }
                    x + bias
                }
            } (batch: 2, q: 3, k: 4) (x: tensor::<_, E>("x", (batch, q, Const::<8>)), tensor::<_, E>("y", (batch, k, Const::<8>))) reads x;

            variables_that_change_places {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut a = tanh(x);
                    let mut b = gelu(x);
                    repeat 3 {
                        let old = a;
                        a = b;
                        b = linear::<d>(old);
                    }
                    a * 2 - b
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_round_that_forgets {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let y = tanh(x);
                    let mut a = gelu(x);
                    let mut b = a;
                    repeat 3 {
                        a = y;
                        b = b + softmax(linear::<d>(a));
                        a = a * b;
                    }
                    a + b
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_value_that_is_kept_and_carried {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    let mut y = x;
                    repeat 2 {
                        x = softmax(x);
                        y = y * x;
                    }
                    y - softmax(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            loops_in_loops {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let outside = tanh(x);
                    let mut x = x;
                    repeat 2, name = outer {
                        let start = rms_norm(x);
                        repeat 3, name = inner {
                            x = x + feed_forward::<7>(layer_norm(x + start)) * outside;
                        }
                        repeat 2, share = true, name = shared {
                            x = x + linear::<d>(start);
                        }
                    }
                    softmax(x)
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            loop_variable_is_the_result {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let mut x = x;
                    repeat 2 { x = x + linear::<d>(x); }
                    x
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_sum_and_the_norm_behind_it {
                struct M<d = 6>;
                fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                    let a = rms_norm(x + x);
                    let b = layer_norm(a + gelu(x));
                    b + rms_norm(gelu(b) + tanh(b))
                }
            } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<6>))) reads x;

            a_product_of_a_sequence_and_its_mean {
                struct M<d = 6>;
                fn forward(x: [seq, d]) -> [d] { mean_pool(x * softmax(x)) }
            } (seq: 5) (x: tensor::<_, E>("x", (seq, Const::<6>))) reads x;
        }
    };
}
