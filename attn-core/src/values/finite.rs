//! The first number of a pass that is not finite.

use std::fmt;

use dfdx::{
    shapes::{HasShape, Rank0, Shape},
    tensor::{NoneTape, OwnedTape, Tensor},
    tensor_ops::Backward,
};

use crate::{
    Backend, Element, Error,
    entry::{ForwardOptions, Observer},
    model::Outline,
    sizes::index_of,
};

/// The operation whose result, or whose gradient of that, is the first of a pass that is not finite; or the input that has NaN.
#[derive(Clone, PartialEq, Debug)]
pub struct NonFinite {
    /// The name of the value: that of its variable, or the kind of the operation, behind the loops that it stands in: `blocks.1.x`.
    pub value: String,
    /// The operation that computes the value: `blocks.1.attention`. Of an input, the place of the number: `[0, 2]`.
    pub operation: String,
    /// The pass in which it was found.
    pub pass: Pass,
    /// The number: NaN or infinite.
    pub number: f64,
}

/// A pass over a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pass {
    /// Before the pass: the value is an input of a trainer's batch, and has NaN. An infinite input may be meant, as a bias of `-∞` is.
    Input,
    /// The value is not finite.
    Forward,
    /// All values are finite, and the gradient of this one is not. An operation that reads it computes the gradient.
    Backward,
}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            value,
            operation,
            number,
            ..
        } = self;
        match self.pass {
            Pass::Input if operation == "[]" => write!(f, "the input `{value}` is {number}"),
            Pass::Input => write!(f, "the input `{value}` has {number} at {operation}"),
            Pass::Forward => write!(
                f,
                "forward: `{value}`, the result of `{operation}`, has the number {number}"
            ),
            Pass::Backward => write!(
                f,
                "backward: the gradient of `{value}`, the result of `{operation}`, has the number {number}"
            ),
        }
    }
}

/// A loss that a backward pass begins with, or none.
pub trait Backpropagate {
    /// The error of the device.
    type Err;

    /// Computes all gradients, and drops them.
    ///
    /// # Errors
    /// The error of the device.
    fn backpropagate(self) -> Result<(), Self::Err>;
}

impl<E: Element, D: Backend<E>> Backpropagate for Tensor<Rank0, E, D, OwnedTape<E, D>> {
    type Err = D::Err;

    fn backpropagate(self) -> Result<(), D::Err> {
        self.try_backward().map(drop)
    }
}

/// Without a tape there is no backward pass.
impl<E: Element, D: Backend<E>> Backpropagate for Tensor<Rank0, E, D, NoneTape> {
    type Err = D::Err;

    fn backpropagate(self) -> Result<(), D::Err> {
        Ok(())
    }
}

/// Looks for NaN in an input of this name.
pub fn nan_of_input<S: Shape, E: Element, D: Backend<E>>(
    name: &str,
    input: &Tensor<S, E, D>,
) -> Option<NonFinite> {
    let shape: Vec<usize> = input.shape().concrete().into_iter().collect();
    // dfdx cannot list the numbers of an empty tensor.
    if shape.contains(&0) {
        return None;
    }
    let numbers = input.as_vec();
    let place = numbers.iter().position(|number| number.is_nan())?;
    let index = index_of(place, &shape);
    Some(NonFinite {
        value: name.to_owned(),
        operation: format!("{index:?}"),
        pass: Pass::Input,
        number: f64::NAN,
    })
}

/// Runs a model as a chain of operations, and then backward from its loss.
///
/// # Errors
/// The error of the model, or of the device in the backward pass.
pub fn first_non_finite<Output, Loss, Dev>(
    run: impl FnOnce(ForwardOptions<'_>) -> Result<Output, Error<Dev>>,
    loss: impl FnOnce(Output) -> Loss,
    outline: impl FnOnce(&mut Outline),
) -> Result<Option<NonFinite>, Error<Dev>>
where
    Loss: Backpropagate<Err = Dev>,
{
    let observer = Observer::of_finiteness();
    let output = run(ForwardOptions {
        observer: Some(&observer),
        ..ForwardOptions::TRAIN
    })?;
    let forward = observer.first_result();
    let found = match forward {
        Some((index, number)) => Some((index, number, Pass::Forward)),
        None => {
            loss(output).backpropagate()?;
            let gradient = observer.into_seen().gradient;
            gradient.map(|(index, number)| (index, number, Pass::Backward))
        }
    };
    Ok(found.map(|(index, number, pass)| {
        let mut of = Outline::default();
        outline(&mut of);
        let named = of.results.swap_remove(index);
        NonFinite {
            value: named.value,
            operation: named.operation,
            pass,
            number,
        }
    }))
}
