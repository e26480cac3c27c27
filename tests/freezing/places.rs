//! Layers in every place that they can stand in: functions that loops call, loops in loops, scans, tied tables, attention and experts.

use super::every_layer::each_parameter;
use super::*;

/// A model whose one input is called `x`, with the mean of the squares of what it computes of it as its loss.
macro_rules! trained_as_on_a_tape {
    ($($name:ident { $($body:tt)* } $shape:ty;)*) => {$(
        #[test]
        fn $name() {
            model! {
                struct M<d = 3>;
                $($body)*
                fn loss(x: [batch, seq, d]) -> [] {
                    mean::<[batch, seq, d]>(pow(forward(x) - 0.5, 2))
                }
            }
            model_of_test!(M, |number| (numbers("x", number)), (Dense<$shape>));
            each_parameter::<M<f64, Cpu>>();
        }
    )*};
}

trained_as_on_a_tape! {
    a_repeat_in_a_scan {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state h: [batch, d] = 0.0;
                let mut y = x;
                repeat 2 {
                    y = tanh(linear::<d>(layer_norm(y + h)));
                }
                h = y;
                yield h * x;
            }
        }
    } Rank3<2, 3, 3>;

    a_scan_in_a_repeat_and_a_repeat_in_a_scan {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let steps = scan seq {
                    state h: [batch, d] = 0.0;
                    let mut y = x;
                    repeat 2, name = inner {
                        y = tanh(linear::<d>(layer_norm(y + h)));
                    }
                    h = y;
                    yield h * x;
                };
                x += steps;
            }
            x
        }
    } Rank3<2, 3, 3>;

    a_layer_behind_a_scan_with_a_repeat {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let steps = scan seq {
                state h: [batch, d] = 0.0;
                let mut y = x;
                repeat 2, name = inner {
                    y = tanh(linear::<d>(layer_norm(y + h)));
                }
                h = y;
                yield h * x;
            };
            linear::<d>(steps)
        }
    } Rank3<2, 3, 3>;

    a_scan_with_parameters_of_its_own_and_of_before {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param start: [d] = normal(0.5);
            param decay: [d] = normal(0.5);
            let y = scan seq, reverse = true {
                state h: [batch, d] = start;
                param gain: [d] = normal(0.5);
                h = h * sigmoid(decay) + gain * layer_norm(x);
                yield rms_norm(h) * x;
            };
            y + x
        }
    } Rank3<2, 3, 3>;

    a_block_in_a_scan {
        block cell(x: [.., n], h: [.., n]) -> [.., n] {
            let gate = sigmoid(linear::<n>(x) + linear::<n, bias = false>(h));
            gate * h + (1 - gate) * x
        }
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state h: [batch, d] = 0.0;
                h = cell(x, h);
                yield h;
            }
        }
    } Rank3<2, 3, 3>;

    attention_in_a_scan {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            scan seq {
                state s: [batch, 2, d] = 0.5;
                s = layer_norm(s + attention::<1>(s) + expand::<[batch, 2, d]>(x));
                yield mean::<2>(s);
            }
        }
    } Rank3<2, 3, 3>;

    a_function_in_a_repeat_of_a_repeat {
        fn inner(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut y = x;
            repeat 2 {
                y += tanh(linear::<d>(y));
            }
            y
        }
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut y = x;
            repeat 2, name = outer {
                y = inner(rms_norm(inner(y)));
            }
            y
        }
    } Rank3<2, 3, 3>;

    rounds_that_read_parameters_of_before {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param gain: [d] = normal(1);
            let mut y = x;
            repeat 3, share = true {
                y = tanh(linear::<d>(y * gain));
            }
            y
        }
    } Rank3<2, 3, 3>;

    the_best_of_experts_in_a_repeat {
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut y = x;
            repeat 2 {
                let (best, ids) = top_k::<4, k = 2>(linear::<4>(y));
                y += sum::<2>(softmax(best) * grouped_linear::<d, 4>(y, ids));
            }
            y
        }
    } Rank3<2, 3, 3>;
}

model! {
    /// The layers stand outside of the loop that calls them.
    struct Called<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        linear::<d>(x)
    }

    fn loss(x: [batch, d]) -> [] {
        let mut y = x;
        repeat 3 {
            y = tanh(forward(y));
        }
        mean::<[batch, d]>(y)
    }
}

model_of_test!(
    Called,
    |number| (numbers("x", number)),
    (Dense<Rank2<2, 3>>)
);

#[test]
fn a_function_that_a_loop_calls() {
    each_parameter::<Called<f64, Cpu>>();
}

model! {
    /// Rounds read a table, whose own rows have no gradient.
    struct Tied<d = 5>;

    fn forward(tokens: ids[batch, seq], x: [batch, seq, d]) -> [batch, seq, d] {
        let mut y = x + detach(embedding::<d, d>(tokens));
        repeat 2 {
            y = tanh(linear::<d>(linear::<tied = embedding>(y)));
        }
        y
    }

    fn loss(tokens: ids[batch, seq], x: [batch, seq, d]) -> [] {
        mean::<[batch, seq, d]>(forward(tokens, x))
    }
}

model_of_test!(
    Tied,
    |number| (tokens(number, 5), numbers("x", number)),
    (Ids<Rank2<2, 3>>, Dense<Rank3<2, 3, 5>>)
);

#[test]
fn a_tied_table_in_rounds() {
    each_parameter::<Tied<f64, Cpu>>();
    let mut trainer = Tied::<f64, Cpu>::trained_by(adamw()).freeze("blocks.*");
    let before = parameters(trainer.model());
    steps(&mut trainer, 0..1);
    let table = |all: &[support::tensors::Named]| all[0].values.clone();
    assert_ne!(table(&parameters(trainer.model())), table(&before));
}

/// On dfdx's tape, too, rounds without layers add to the gradient of an input.
#[test]
fn rounds_without_layers_from_a_start_without_a_gradient() {
    model! {
        struct M<d = 3>;
        fn forward(x: [batch, d]) -> [batch, d] {
            let mut h = detach(x);
            repeat 3 {
                h = h * x;
            }
            h
        }
    }
    let model = Cpu::default().build_module::<M, f64>();
    let x: Dense<Rank2<2, 3>> = numbers("x", 0);
    let fused = model.forward(x.leaky_trace()).sum().backward();
    let composed = model.composed().forward(x.leaky_trace()).sum().backward();
    let [fused, composed] = [fused, composed].map(|gradients| gradients.get(&x).array());
    for (found, (&expected, &x)) in fused
        .as_flattened()
        .iter()
        .zip(composed.as_flattened().iter().zip(x.array().as_flattened()))
    {
        // `x⁴` of which one `x` has no gradient. The forms multiply in different orders.
        assert!((found - expected).abs() <= 1e-14 * expected.abs());
        assert!((expected - 3.0 * x.powi(3)).abs() <= 1e-14 * expected.abs());
    }
}
