//! Modules in a pass that are known only by their type.

use dfdx::{
    nn::{
        BuildOnDevice, Module, ModuleMut, TensorCollection,
        tensor_collection::{RecursiveWalker, TensorOptions, TensorVisitor},
    },
    shapes::{Dtype, Shape},
    tensor::{AutoDevice, Tape, Tensor},
    tensor_ops::Device,
};

use super::Pass;
use crate::{Backend, Element, Error};

/// The type that `build_module::<M, E>` of a device returns.
pub type Built<M, D, E> = <M as BuildOnDevice<D, E>>::Built;

impl<T> Pass<'_, T> {
    /// Runs the `forward` of a module on the input that `input` makes with the tape.
    ///
    /// # Errors
    /// [`Error::Device`] with the error of the module.
    pub fn module<M, X, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        module: &M,
        input: impl FnOnce(T) -> X,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        M: Module<X, Output = Tensor<S, E, D, T>, Error = D::Err>,
        T: Tape<E, D>,
    {
        self.with_tape(|tape| Ok(module.try_forward(input(tape))?))
    }

    /// Runs the `forward_mut` of a module on the input that `input` makes with the tape.
    ///
    /// # Errors
    /// [`Error::Device`] with the error of the module.
    pub fn module_mut<M, X, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        module: &mut M,
        input: impl FnOnce(T) -> X,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        M: ModuleMut<X, Output = Tensor<S, E, D, T>, Error = D::Err>,
        T: Tape<E, D>,
    {
        self.with_tape(|tape| Ok(module.try_forward_mut(input(tape))?))
    }
}

/// The number of parameters of a module, counted without building it.
///
/// ```
/// use attn::{__private::runtime::model::{Built, count}, dfdx::prelude::*};
///
/// // The running mean and variance of the last are no parameters.
/// type Layers = (Linear<8, 3>, ReLU, BatchNorm1D<3>);
/// assert_eq!(count::<Built<Layers, AutoDevice, f32>>(), 8 * 3 + 3 + 3 + 3);
/// ```
pub fn count<M: TensorCollection<f32, AutoDevice>>() -> usize {
    let mut counter = Counter(0);
    let Ok(_) = M::iter_tensors(&mut RecursiveWalker {
        m: (),
        f: &mut counter,
    });
    counter.0
}

struct Counter(usize);

impl<E: Dtype, D: Device<E>> TensorVisitor<E, D> for Counter {
    type Viewer = ();
    type Err = std::convert::Infallible;
    type E2 = E;
    type D2 = D;

    fn visit<S: Shape>(
        &mut self,
        tensor: TensorOptions<S, E, D>,
        (): (),
    ) -> Result<Option<Tensor<S, E, D>>, Self::Err> {
        if tensor.do_gradient_update {
            self.0 += tensor.shape.num_elements();
        }
        Ok(None)
    }
}
