//! States that are kept before every √n-th step, and steps that are computed again.

use super::claim::{self, agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

agree! {
    gru {
        struct M<d = 3, hidden = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
            scan seq, keep = sqrt {
                state h: [batch, hidden] = 0.0;
                let (xr, xz, xn) = split(linear::<{ 3 * hidden }>(x));
                let (hr, hz, hn) = split(linear::<{ 3 * hidden }>(h));
                let z = sigmoid(xz + hz);
                h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                yield h;
            }
        }
    } (batch: 2, seq: 5) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    backwards_from_a_learned_state {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            param start: [d] = normal(0.5);
            param decay: [d] = normal(0.5);
            let (y, last) = scan seq, reverse = true, keep = sqrt {
                state h: [batch, d] = start;
                state c: [batch, d] = 1;
                c = tanh(linear::<d>(c)) + h;
                h = h * sigmoid(decay) + layer_norm(x);
                yield (rms_norm(h) * x + c);
                c
            };
            y + x * last
        }
    } (batch: 2, seq: 6) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;

    in_rounds {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let mut x = x;
            repeat 2 {
                let y = scan seq, keep = sqrt {
                    state h: [batch, d] = 0.5;
                    let mut z = h + x;
                    repeat 2 { z = tanh(linear::<d>(layer_norm(z))); }
                    h = 0.5 * h + z;
                    yield h;
                };
                x += y;
            }
            x
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>))) reads x;
}

macro_rules! scan {
    ($Model:ident, $keep:tt, $reverse:tt) => {
        model! {
            struct $Model<d = 5>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                param decay: [d] = normal(0.5);
                let (y, last) = scan seq, keep = $keep, reverse = $reverse {
                    state h: [batch, d] = 0.25;
                    let mut z = dropout::<0.3>(layer_norm(linear::<d>(h) + x));
                    repeat 2 { z = dropout::<0.1>(tanh(linear::<d>(z))); }
                    h = sigmoid(decay) * h + z;
                    yield h * x;
                    h
                };
                y + last
            }
        }
    };
}

scan!(All, all, false);
scan!(Sqrt, sqrt, false);
scan!(AllBackwards, all, true);
scan!(SqrtBackwards, sqrt, true);

/// The output and all gradients, after dropout.
macro_rules! run {
    ($Model:ident, $seq:expr) => {{
        let dev = Cpu::seed_from_u64(7);
        let mut model = dev.build_module::<$Model, f64>();
        scatter(&mut model);
        let numbers = tensor::<_, f64>("x", (2, $seq, Const::<5>)).as_vec();
        let x = dev.tensor_from_vec(numbers, (2, $seq, Const::<5>));
        let ran: Backpropagated<f64> = backpropagate(model.forward_mut(x.clone().leaky_traced()));
        let outcome: Outcome = ran.input("x", &x).parameters(&model);
        outcome
    }};
}

/// Dropout has the same mask when a step is computed again. The gradients of weights are a product for each segment, and not one of all
/// steps: their sums have another order.
fn assert_alike(seq: usize, sqrt: &Outcome, all: &Outcome) {
    for name in ["output", "gradient of x", "gradient of decay.weight"] {
        assert_eq!(sqrt.get(name), all.get(name), "{name} of {seq} steps");
    }
    assert_same(format!("{seq} steps"), sqrt, all, 1e-13);
}

#[test]
fn the_numbers_are_those_of_a_scan_that_keeps_all() {
    for seq in (1..=10).chain([16, 17, 30]) {
        assert_alike(seq, &run!(Sqrt, seq), &run!(All, seq));
        assert_alike(seq, &run!(SqrtBackwards, seq), &run!(AllBackwards, seq));
    }
}

#[test]
fn there_may_be_no_steps() {
    let model = Cpu::default().build_module::<Sqrt, f64>();
    let y = model.forward(tensor::<_, f64>("x", (2, 0, Const::<5>)));
    assert_eq!(y.shape().concrete(), [2, 0, 5]);
}
