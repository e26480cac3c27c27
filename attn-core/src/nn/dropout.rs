//! Dropout between layers.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection},
    shapes::Shape,
    tensor::{Tape, Tensor},
    tensor_ops::Device,
};

use crate::{Backend, Element, Error, ops::try_dropout};

/// Sets each element to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`, while training: in
/// `forward_mut`, of a tensor with a tape. Otherwise it does nothing. See [`ops::dropout`](crate::ops::dropout).
///
/// Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.Dropout(p)` in a model that is in training mode. Unlike dfdx's,
/// it can be called with and without a tape, so that one model trains, is measured while gradients are traced, and
/// predicts.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Dropout};
///
/// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().ones();
/// let mut dropout = Dropout { p: 1.0 };
/// assert_eq!(dropout.forward(x.clone()).array(), [1.0; 4]);
/// assert_eq!(dropout.forward_mut(x.clone()).array(), [1.0; 4]);
/// assert_eq!(dropout.forward_mut(x.leaky_traced()).array(), [0.0; 4]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The probability, from 0 to 1; 0.1 at first, as in Vaswani et al., "Attention is all you need" (2017). It is not
    /// saved, and a copy on another device or of another type starts with that again.
    pub p: f32,
}

impl Default for Dropout {
    fn default() -> Self {
        Self { p: 0.1 }
    }
}

impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> Module<Tensor<S, E, D, T>> for Dropout {
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        Ok(x)
    }
}

impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> ModuleMut<Tensor<S, E, D, T>> for Dropout {
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward_mut(&mut self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_dropout(x, self.p.into()).map_err(Error::into_device)
    }
}

impl<E: Dtype, D: Device<E>> TensorCollection<E, D> for Dropout {
    type To<E2: Dtype, D2: Device<E2>> = Self;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(visitor: &mut V) -> Result<Option<Self>, V::Err> {
        visitor.visit_fields((), |()| Self::default())
    }
}

impl<E: Dtype, D: Device<E>> BuildOnDevice<D, E> for Dropout {
    type Built = Self;
}
