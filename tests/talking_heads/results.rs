//! Weights and logarithms of sums beside the output, with their gradients, and dropout.

use attn::{attention, dfdx::prelude::*, model};
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, flat, weighted_sum};
use support::gradients::assert_gradients_of_state;
use support::parameters::{add_gradients, make, state};
use support::reference::State;

macro_rules! slopes {
    ($($name:ident [$($attend:tt)*];)*) => {$(
        #[test]
        fn $name() {
            model! {
                struct M<d = 8, heads = 4, kv_heads = 2, width = 2>;
                fn forward(x: [batch, seq, d]) -> ([batch, heads, seq, width], [batch, heads, seq, seq2], [batch, heads, seq]) {
                    let context = x as [batch, seq2 = seq, d];
                    let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<8>(x));
                    let k = rearrange::<[batch, seq2, (kv_heads, width)] -> [batch, kv_heads, seq2, width]>(linear::<4>(context));
                    let v = rearrange::<[batch, seq2, (kv_heads, width)] -> [batch, kv_heads, seq2, width]>(linear::<4>(context));
                    let (y, weights, lse) = attend::<$($attend)*>(q, k, v);
                    (y, weights, lse)
                }
            }

            fn run(state: &State, composed: bool) -> Outcome {
                let (mut model, parameters) = make::<M<f64>, f64>(state);
                let x: Tensor<(usize, usize, Const<8>), f64, Cpu> = state.tensor("x", (2, 5, Const));
                let (y, weights, lse) = match composed {
                    false => model.forward_mut(x.leaky_trace()),
                    true => model.composed().forward_mut(x.leaky_trace()),
                };
                let outputs = [("output", flat(&y)), ("weights", flat(&weights)), ("lse", flat(&lse))];
                let loss = weighted_sum(y) + weighted_sum(weights.square()) + weighted_sum(lse.square());
                add_gradients(Backpropagated::of(outputs, loss).input("x", &x), &parameters)
            }
            let mut state = state::<M<f64>, f64>();
            state.insert("x", &[2, 5, 8]);
            let outcome = run(&state, false);
            assert_gradients_of_state(stringify!($name), &state, &outcome, &|state| run(state, false).loss());
            // Sums of at most 8 terms of order 1, on a few levels.
            assert_same(stringify!($name), &outcome, &run(&state, true), 1e-12);
        }
    )*};
}

slopes! {
    softmax [mask = causal(upper_left), talking_heads = both, dropout = 0.3];
    sinks [normalizer = sink, talking_heads = both];
    before [normalizer = softmax1, talking_heads = before];
    after [talking_heads = after, position = rope];
}

attention! {
    struct Dropped<heads = 2, d_model = 8, mask = causal, dropout = 0.5, talking_heads = both>;
}

/// As in CaiT, what is dropped is a mixed weight.
#[test]
fn mixed_weights_are_dropped() {
    let mut layer = Cpu::default().build_module::<Dropped, f32>();
    scatter(&mut layer);
    let x: Tensor<(usize, Const<8>), f32, Cpu> = tensor("x", (30, Const));
    let (_, whole) = layer.forward_with_weights(x.clone());
    let (_, dropped) = layer.forward_mut_with_weights(x.leaky_trace());
    let mut kept = 0;
    for (whole, dropped) in whole.as_vec().into_iter().zip(dropped.as_vec()) {
        assert!(
            dropped == 0.0 || dropped == 2.0 * whole,
            "{dropped} of {whole}"
        );
        kept += usize::from(dropped != 0.0);
    }
    // Half of the 2 * 465 weights that the mask leaves: √930 / 2 = 15 is the standard deviation.
    assert!(kept.abs_diff(465) < 80, "{kept} of 930");
}
