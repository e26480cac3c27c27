//! Residual connections.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection},
    shapes::Shape,
    tensor::{Tape, Tensor, WithEmptyTape},
    tensor_ops::Device,
};

use crate::{Backend, Element, Error, ops::try_add};

/// `x + F(x)`, for a layer `F` that keeps the shape.
///
/// He et al., "Deep residual learning for image recognition" (2015). It is dfdx's `Residual` with the operation
/// [`ops::add`](crate::ops::add): its parameters are those of `F`, under the name `0`.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::{FeedForward, LayerNorm, Residual}};
///
/// type Block = Residual<(LayerNorm<8>, FeedForward<8, 32>)>;
///
/// let dev = Cpu::default();
/// let block = dev.build_module::<Block, f32>();
/// let x: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
/// let y: Tensor<Rank3<2, 5, 8>, f32, _> = block.forward(x);
/// ```
#[doc(alias = "skip_connection")]
#[derive(Clone, Debug, Default)]
pub struct Residual<F>(
    /// The layer.
    pub F,
);

impl<F, S, E, D, T> Module<Tensor<S, E, D, T>> for Residual<F>
where
    F: Module<Tensor<S, E, D, T>, Output = Tensor<S, E, D, T>, Error = D::Err>,
    S: Shape,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        let inner = self.0.try_forward(x.with_empty_tape())?;
        try_add(x, inner).map_err(Error::into_device)
    }
}

impl<F, S, E, D, T> ModuleMut<Tensor<S, E, D, T>> for Residual<F>
where
    F: ModuleMut<Tensor<S, E, D, T>, Output = Tensor<S, E, D, T>, Error = D::Err>,
    S: Shape,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward_mut(&mut self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        let inner = self.0.try_forward_mut(x.with_empty_tape())?;
        try_add(x, inner).map_err(Error::into_device)
    }
}

impl<F: TensorCollection<E, D>, E: Dtype, D: Device<E>> TensorCollection<E, D> for Residual<F> {
    type To<E2: Dtype, D2: Device<E2>> = Residual<F::To<E2, D2>>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(Self::module("0", |s| &s.0, |s| &mut s.0), Residual)
    }
}

impl<F: BuildOnDevice<D, E>, E: Dtype, D: Device<E>> BuildOnDevice<D, E> for Residual<F> {
    type Built = Residual<F::Built>;
}
