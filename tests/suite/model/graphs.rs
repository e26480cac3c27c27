//! Graphs of every form as one operation: values that are read twice, change places, leave loops or are returned as they came.

use super::agree::{agree, tolerance};
use super::*;
use crate::layers::compare::assert_same;
use attn::{Backend, Element, model};

agree! {
    a_sum_of_a_value_with_itself {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = tanh(x);
            let z = y + y;
            z + x + x
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    a_product_of_a_value_with_itself {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = tanh(x);
            y * y + x * x - y
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    a_gradient_with_two_owners {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = tanh(x);
            let z = y * 2;
            gelu(y + z) - layer_norm(z + y)
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    a_sequence_that_is_its_own_context {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = tanh(x);
            attention::<2>(y, context = y) + attention::<2, name = of_input>(x, context = x)
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<8>))) reads x;

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
    } (x: tensor::<_, E>("x", (2, 3, Const::<8>)), tensor::<_, E>("y", (2, 4, Const::<8>))) reads x;

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
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

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
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

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
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

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
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    what_a_loop_carries_is_the_result {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 { x = x + linear::<d>(x); }
            x
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    a_sum_and_the_norm_behind_it {
        struct M<d = 6>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let a = rms_norm(x + x);
            let b = layer_norm(a + gelu(x));
            b + rms_norm(gelu(b) + tanh(b))
        }
    } (x: tensor::<_, E>("x", (2, 3, Const::<6>))) reads x;

    a_product_of_a_sequence_and_its_mean {
        struct M<d = 6>;
        fn forward(x: [seq, d]) -> [d] { mean_pool(x * softmax(x)) }
    } (x: tensor::<_, E>("x", (5, Const::<6>))) reads x;
}

model! {
    struct Several<d = 6>;
    fn forward(x: [batch, seq, d], y: [batch, seq, d])
        -> ([batch, seq, d], [batch, d], [batch, seq, d], [batch, seq, d], [batch, seq, d])
    {
        let a = linear::<d>(x) + y;
        let b = softmax(a);
        (b, mean_pool(a), b, x, y)
    }
}

/// A loss of all results, each with weights of its own.
macro_rules! loss {
    ($results:expr) => {{
        let (a, pooled, again, x, y) = $results;
        let weigh =
            |t: Tensor<_, f64, _, _>, name| (t * tensor::<_, f64>(name, (2, 3, Const::<6>))).sum();
        let pooled = (pooled * tensor::<_, f64>("p", (2, Const::<6>))).sum();
        weigh(a, "a") + pooled + weigh(again, "again") + weigh(x, "x too") + weigh(y, "y too")
    }};
}

#[test]
fn several_results_some_of_them_twice_or_as_they_came() {
    let mut model = Cpu::default().build_module::<Several, f64>();
    scatter(&mut model);
    let x = tensor::<_, f64>("x", (2, 3, Const::<6>));
    let y = tensor::<_, f64>("y", (2, 3, Const::<6>));
    let outcome = |loss: Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>>| {
        let value = loss.array();
        let gradients = loss.backward();
        let gradient = gradients.get(&x);
        let learned = gradients.get(&model.linear.weight);
        (
            value,
            tensors::flat(&gradient),
            tensors::flat(&learned),
            tensors::flat(&gradients.get(&y)),
        )
    };
    let one = outcome(loss!(model.forward((x.clone().leaky_traced(), y.clone()))));
    let many = outcome(loss!(
        model
            .composed()
            .forward((x.clone().leaky_traced(), y.clone()))
    ));
    // Some hundred terms of order 1.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
    assert!(close(one.0, many.0), "{} {}", one.0, many.0);
    for (one, many) in [(one.1, many.1), (one.2, many.2), (one.3, many.3)] {
        assert!(
            one.iter().zip(&many).all(|(a, b)| close(*a, *b)),
            "{one:?} {many:?}"
        );
    }
}
