//! What a trainer knows of a declared model.

use dfdx::{
    nn::TensorCollection,
    shapes::Rank0,
    tensor::{Gradients, HasErr, Merge, NoneTape, Storage, Tape, Tensor},
};

use crate::{Backend, Element, Error, fused::Operation, values::NonFinite};

/// A model with a loss: its `model!` has a function `loss` whose result is a single number.
///
/// `model!` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no loss that a trainer can take the gradients of",
    label = "there is no trainer for this model",
    note = "a trainer takes steps on the function `loss` of a `model!`: `fn loss(x: [batch, 8], target: [batch, 1]) -> [] {{ .. }}`",
    note = "a model with a `module`, of which only the type is known, is trained with `backward` and an optimizer of `attn::train`"
)]
pub trait Trainable:
    TensorCollection<<Self as Trainable>::Element, <Self as Trainable>::Device> + Sized
{
    /// The type of the numbers.
    type Element: Element;
    /// The device.
    type Device: Backend<Self::Element>;

    /// Reserves places for all parameters, in the order in which [`TrainBatch::loss`] does.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    #[doc(hidden)]
    fn reserve(
        &self,
        operation: &mut Operation<Self::Element, Self::Device, NoneTape>,
    ) -> Result<(), ErrOf<Self>>;
}

/// dfdx's error on the device of a model.
pub(in crate::train) type ErrOf<M> = <<M as Trainable>::Device as HasErr>::Err;

/// The arguments of the `loss` of a model `M`: a tensor, a tuple of several, or the struct of them by name.
///
/// `model!` implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no batch of `{M}`",
    label = "these are not the arguments of the model's `loss`",
    note = "a batch is what `model.loss(..)` takes: a tensor, or a tuple of several, without a tape"
)]
pub trait TrainBatch<M: Trainable>: Clone {
    /// Computes the loss as one operation.
    ///
    /// # Errors
    /// The errors of the model's `loss`.
    #[doc(hidden)]
    #[allow(
        clippy::type_complexity,
        reason = "a tensor on the device of the model"
    )]
    fn loss<T: Tape<M::Element, M::Device>>(
        self,
        model: &M,
        operation: Operation<M::Element, M::Device, T>,
    ) -> Result<Tensor<Rank0, M::Element, M::Device, T>, Error<ErrOf<M>>>;

    /// How many targets count: of the last input that is the targets of a `cross_entropy`, those that this does not ignore. If there is none,
    /// the numbers of the last tensor that has no default, as a loss and its inputs are written.
    #[doc(hidden)]
    fn targets(&self) -> usize;

    /// The length of the first axis of its first input.
    #[doc(hidden)]
    fn rows(&self) -> usize;

    /// Looks for NaN in the inputs, then computes the loss and all gradients as a chain of operations, and looks for the first number that is not
    /// finite.
    ///
    /// # Errors
    /// The errors of the model's `loss`.
    #[doc(hidden)]
    fn first_non_finite(self, model: &M) -> Result<Option<NonFinite>, Error<ErrOf<M>>>;
}

/// Stands for a tape: what the derivative reads is kept. The derivative itself goes to the trainer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepTape;

impl Merge<StepTape> for StepTape {
    fn merge(self, _: StepTape) -> Self {
        self
    }
}

impl Merge<NoneTape> for StepTape {
    fn merge(self, _: NoneTape) -> Self {
        self
    }
}

impl<E, D: Storage<E>> Tape<E, D> for StepTape {
    const OWNS_TAPE: bool = true;

    /// The gradients of the inputs, which such an operation would compute, are not asked for.
    fn add_backward_op<F>(&mut self, _: F)
    where
        F: 'static + FnOnce(&mut Gradients<E, D>) -> Result<(), D::Err>,
    {
    }
}
