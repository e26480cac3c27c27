//! Whole models against differences of their output: the derivative without a derivative.

use super::*;
use attn::model;

model! {
    struct Encoder<vocab = 7, d_model = 6>;

    fn forward(tokens: ids[batch, seq], lens: lens[batch], keep: bool[batch, seq]) -> [batch, 3] {
        let mut x = embedding::<vocab, d_model>(tokens) + sinusoidal_position::<d_model>(tokens);
        repeat 2 {
            x = layer_norm(x + attention::<2, mask = padding>(x, padding = lens));
            x = layer_norm(x + attention::<2, mask = causal & padding>(x, padding = keep));
            x = rms_norm(x + feed_forward::<8, activation = swiglu>(x));
        }
        linear::<3>(tanh(mean_pool(x, lens) + mean_pool(x, keep)))
    }
}

/// A step that is small against the numbers, and large against the rounding of the output: the error of the difference is
/// the square of the step, 1e-10, plus ε / step, 2e-11, times derivatives and outputs up to some ten.
const STEP: f64 = 1e-5;
const TOLERANCE: f64 = 2e-8;

#[test]
fn of_every_parameter() {
    let mut model = Cpu::default().build_module::<Encoder, f64>();
    scatter(&mut model);
    let inputs = || (ids((2, 4), 7).leaky_traced(), lens([4, 3]), marks((2, 4)));
    let outcome = backpropagate(model.forward(inputs())).parameters(&model);
    let names: Vec<_> = tensors::parameters(&model);
    for parameter in names {
        let gradient = outcome.gradient(&parameter.name);
        // A few elements of each.
        for index in [0, gradient.len() / 3, gradient.len() - 1] {
            let at = |by: f64| {
                let mut moved = model.clone();
                tensors::fill(&mut moved, |name, values| {
                    let mut values = values.to_vec();
                    if name == parameter.name {
                        values[index] += by;
                    }
                    values
                });
                backpropagate(moved.forward(inputs()))
                    .parameters(&())
                    .loss()
            };
            let difference = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let name = &parameter.name;
            assert!(
                (difference - gradient[index]).abs() < TOLERANCE,
                "{name}[{index}]: {difference}, {}",
                gradient[index]
            );
        }
    }
}
