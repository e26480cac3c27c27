//! Steps read values around them: detached ones, and one value by two names. A model that reads the last state has no session.

use super::claim::{self, agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

agree! {
    // One pass writes the gradients of a sequence and of its slice.
    a_sequence_and_its_slice {
        struct M<d = 3>;
        fn forward(x: [seq, batch, d], w: [seq, d]) -> [seq, batch, d] {
            let y = tanh(linear::<d>(x));
            let z = y as [t = seq, batch, d];
            let v = tanh(linear::<d>(w));
            let u = v as [t = seq, d];
            scan seq {
                state h: [batch, d] = 0.0;
                h = tanh(h + sum::<t>(y * z)) + sum::<t>(u * v + sum::<d>(v * u));
                yield h;
            }
        }
    } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (seq, batch, Const::<3>)), tensor::<_, E>("w", (seq, Const::<3>)));

    // Both scans return the same value at all steps, and keep seeds and norms.
    two_scans_with_one_result {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let w = tanh(linear::<d>(mean::<seq>(x)));
            let (a, b) = scan seq, keep = sqrt {
                state h: [batch, d] = 0.0;
                h = tanh(h + dropout::<0.1>(layer_norm(h))) + x;
                yield (w, h);
            };
            let (c, e) = scan seq, keep = sqrt {
                state h: [batch, d] = 0.0;
                h = tanh(h + dropout::<0.1>(layer_norm(h))) * x;
                yield (w, h);
            };
            a * b + c * e
        }
    } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    an_input_by_two_names_of_its_axes {
        struct M<d = 3>;
        fn forward(x: [seq, d]) -> [seq, d] {
            let y = x as [seq, e = d];
            scan seq {
                state h: [d] = 0.5;
                h = tanh(h + x + sum::<e>(y * (h as [e = d])));
                yield h;
            }
        }
    } (seq: 4) (x: tensor::<_, E>("x", (seq, Const::<3>))) reads x;

    a_computed_value_by_two_names_of_its_axes {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let z = tanh(x);
            let y = z as [batch, seq, e = d];
            scan seq {
                state h: [batch, d] = 0.5;
                h = tanh(h + z * sum::<e>(y));
                yield h;
            }
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
}

model! {
    struct Counts<vocab = 5, d = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let (y, last) = scan seq {
            state h: [batch, d] = 0;
            h = tanh(linear::<d>(x) + linear::<d>(h));
            yield h;
            h
        };
        linear::<vocab>(y + last)
    }
}

/// It has a session, since nothing reads the last state.
#[test]
fn a_last_state_that_nothing_reads_is_none_of_a_session() {
    model! {
        struct Unread<vocab = 5, d = 4>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            let x = embedding::<vocab, d>(tokens);
            let (y, _last) = scan seq {
                state h: [batch, d] = 0;
                h = tanh(linear::<d>(x) + linear::<d>(h));
                yield h;
                h
            };
            linear::<vocab>(y)
        }
    }
    let mut model = Cpu::default().build_module::<Unread, f64>();
    scatter(&mut model);
    let tokens: Tensor<(usize, usize), usize, Cpu> =
        Cpu::default().tensor_from_vec(vec![3, 1], (1, 2));
    let whole = model.forward(tokens).as_vec();
    let mut session = model.session(2).unwrap();
    session.step(3).unwrap();
    let found = session.step(1).unwrap();
    assert!(
        found
            .iter()
            .zip(&whole[5..])
            .all(|(a, b)| (a - b).abs() < tolerance::<f64>())
    );
}

#[test]
fn every_step_may_read_the_last_state() {
    let mut model = Cpu::default().build_module::<Counts, f64>();
    scatter(&mut model);
    let tokens = || -> Tensor<(usize, usize), usize, Cpu> {
        Cpu::default().tensor_from_vec(vec![3, 1, 4, 0], (2, 2))
    };
    let run = |y| {
        let ran: Backpropagated<f64> = backpropagate(y);
        ran.parameters(&model)
    };
    let fused = run(model.forward(tokens().leaky_traced()));
    let composed = run(model.composed().forward(tokens().leaky_traced()));
    assert_same("last", &fused, &composed, tolerance::<f64>());
}
