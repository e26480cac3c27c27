//! The gradients of layers and models against central differences of their losses, for each tensor separately: a small wrong one
//! is not hidden by the others.

use crate::compare::Outcome;
use crate::differences::assert_gradient_along_some;
use crate::reference::State;
use crate::tensors;
use dfdx::prelude::*;
use std::fmt::Display;

/// Asserts it for all gradients in `outcome`: those of the tensors in `state`, of which `loss` is a function.
#[track_caller]
pub fn assert_gradients_of_state(
    what: impl Display,
    state: &State,
    outcome: &Outcome,
    loss: &dyn Fn(&State) -> f64,
) {
    for (name, gradient) in outcome.gradients() {
        let what = format!("{what}: {name}");
        assert_gradient_along_some(what, &state.get(name).flat, gradient, |x| {
            let mut moved = state.clone();
            moved.flat_mut(name).copy_from_slice(x);
            loss(&moved)
        });
    }
}

/// Asserts it for every parameter of the model of `make`, whose gradients are in `outcome`.
#[track_caller]
pub fn assert_gradients_of_parameters<M: TensorCollection<f64, Cpu>>(
    make: &dyn Fn() -> M,
    outcome: &Outcome,
    loss: &dyn Fn(M) -> f64,
) {
    for parameter in tensors::parameters(&make()) {
        let name = &parameter.name;
        let values = &parameter.values;
        assert_gradient_along_some(name, values, outcome.gradient(name), |x| {
            let mut moved = make();
            tensors::fill(
                &mut moved,
                |filled, values| {
                    if filled == name { x.to_vec() } else { values }
                },
            );
            loss(moved)
        });
    }
}

/// Asserts it for an input, whose gradient is in `outcome`.
#[track_caller]
pub fn assert_gradient_of_input<S: Shape>(
    name: &str,
    input: &Tensor<S, f64, Cpu>,
    outcome: &Outcome,
    loss: &dyn Fn(Tensor<S, f64, Cpu>) -> f64,
) {
    let x = tensors::flat(input);
    let shape = *input.shape();
    assert_gradient_along_some(name, &x, outcome.gradient(name), |x| {
        loss(Cpu::default().tensor_from_vec(x.to_vec(), shape))
    });
}
