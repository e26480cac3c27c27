//! Models against differences of their output: the derivative without a derivative.

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

/// Asserts that a gradient is the slope of `loss`, which is given an element and by how much it moves: a few elements.
pub(super) fn check(name: &str, gradient: &[f64], loss: impl Fn(usize, f64) -> f64) {
    for index in [0, gradient.len() / 3, gradient.len() - 1] {
        let difference = (loss(index, STEP) - loss(index, -STEP)) / (2.0 * STEP);
        assert!(
            (difference - gradient[index]).abs() < TOLERANCE,
            "{name}[{index}]: {difference}, {}",
            gradient[index]
        );
    }
}

/// The same of one that is among what was computed.
pub(super) fn of(name: &str, outcome: &Outcome, loss: impl Fn(usize, f64) -> f64) {
    check(name, outcome.gradient(name), loss);
}

/// The same of every parameter of a model.
pub(super) fn of_parameters<M: TensorCollection<f64, Cpu> + Clone>(
    model: &M,
    outcome: &Outcome,
    loss: impl Fn(&M) -> f64,
) {
    for parameter in tensors::parameters(model) {
        of(&parameter.name, outcome, |index, by| {
            let mut moved = model.clone();
            tensors::fill(&mut moved, |name, mut values| {
                if name == parameter.name {
                    values[index] += by;
                }
                values
            });
            loss(&moved)
        });
    }
}

/// A tensor with one element moved.
pub(super) fn moved<S: Shape>(
    x: &Tensor<S, f64, Cpu>,
    index: usize,
    by: f64,
) -> Tensor<S, f64, Cpu> {
    let mut values = x.as_vec();
    values[index] += by;
    Cpu::default().tensor_from_vec(values, *x.shape())
}

/// `loss`, which takes a model and what is of the type of `_input`.
pub(super) fn loss_of<X, M, F: Fn(&M, X) -> f64>(_input: &X, loss: F) -> F {
    loss
}

#[test]
fn of_a_whole_model() {
    let mut model = Cpu::default().build_module::<Encoder, f64>();
    scatter(&mut model);
    let inputs = || (ids((2, 4), 7).leaky_traced(), lens([4, 3]), marks((2, 4)));
    let outcome = backpropagate(model.forward(inputs())).parameters(&model);
    of_parameters(&model, &outcome, |moved| {
        backpropagate(moved.forward(inputs()))
            .parameters(&())
            .loss()
    });
}
