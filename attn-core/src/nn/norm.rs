//! Norms with their parameters.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::Rank1,
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error, init,
    ops::{EndsIn, try_layer_norm, try_rms_norm},
};

/// `(x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias` over the last axis: [`ops::layer_norm`](crate::ops::layer_norm)
/// with its parameters. One operation of the tape.
///
/// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch: `torch.nn.LayerNorm(M)`, with its names and initial
/// values. (dfdx's `LayerNorm1D` calls them `gamma` and `beta`.)
///
/// | | shape | at first |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `weight` | `[M]` | 1 |
/// | `bias` | `[M]` | 0 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::LayerNorm};
///
/// let dev = Cpu::default();
/// let norm = dev.build_module::<LayerNorm<4>, f32>();
/// let y = norm.forward(dev.tensor([[1.0, 1.0, 3.0, 3.0]]));
/// assert!(y.array()[0].iter().all(|y| (y.abs() - 1.0).abs() < 1e-4));
/// ```
#[doc(alias = "LayerNorm1D")]
#[derive(Clone, Debug)]
pub struct LayerNorm<const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// What a normalised vector is multiplied with.
    pub weight: Tensor<Rank1<M>, E, D>,
    /// What is added then.
    pub bias: Tensor<Rank1<M>, E, D>,
    /// Keeps the divisor away from 0; [`EPSILON`](Self::EPSILON) at first. It is not saved, and a copy on another device or
    /// of another type starts with that again; in a network of `model!`, with that of the declaration.
    pub epsilon: f64,
}

/// `x / sqrt(mean(x²) + epsilon) * weight` over the last axis: [`ops::rms_norm`](crate::ops::rms_norm) with its
/// parameter. One operation of the tape.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019). PyTorch: `torch.nn.RMSNorm(M, eps=1e-6)`, with its
/// name and initial values.
///
/// | | shape | at first |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `weight` | `[M]` | 1 |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::RmsNorm};
///
/// let dev = Cpu::default();
/// let norm = dev.build_module::<RmsNorm<2>, f64>();
/// let y: Tensor<Rank1<2>, f64, _> = norm.forward(dev.tensor([5.0, -5.0]));
/// assert!(y.array().iter().all(|y| (y.abs() - 1.0).abs() < 1e-6));
/// ```
#[derive(Clone, Debug)]
pub struct RmsNorm<const M: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// What a normalised vector is multiplied with.
    pub weight: Tensor<Rank1<M>, E, D>,
    /// Keeps the divisor away from 0; [`EPSILON`](Self::EPSILON) at first. It is not saved, and a copy on another device or
    /// of another type starts with that again; in a network of `model!`, with that of the declaration.
    pub epsilon: f64,
}

impl<const M: usize, E: Dtype, D: Storage<E>> LayerNorm<M, E, D> {
    /// How many numbers it learns.
    pub const PARAMS: usize = 2 * M;
    /// The epsilon of a new norm, PyTorch's.
    pub const EPSILON: f64 = 1e-5;

    /// The same with another epsilon, which has to be positive.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }
}

impl<const M: usize, E: Dtype, D: Storage<E>> RmsNorm<M, E, D> {
    /// How many numbers it learns.
    pub const PARAMS: usize = M;
    /// The epsilon of a new norm, that of LLaMA and of most others.
    pub const EPSILON: f64 = 1e-6;

    /// The same with another epsilon, which has to be positive.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }
}

impl<const M: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for LayerNorm<M, E, D>
where
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_layer_norm(x, &self.weight, &self.bias, self.epsilon).map_err(Error::into_device)
    }
}

impl<const M: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for RmsNorm<M, E, D>
where
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_rms_norm(x, &self.weight, self.epsilon).map_err(Error::into_device)
    }
}

impl<const M: usize, E: Dtype, D: Storage<E>> NonMutableModule for LayerNorm<M, E, D> {}
impl<const M: usize, E: Dtype, D: Storage<E>> NonMutableModule for RmsNorm<M, E, D> {}

impl<const M: usize, E: Element, D: Device<E>> TensorCollection<E, D> for LayerNorm<M, E, D> {
    type To<E2: Dtype, D2: Device<E2>> = LayerNorm<M, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            (
                Self::tensor(
                    "weight",
                    |s| &s.weight,
                    |s| &mut s.weight,
                    TensorOptions::reset_with(|t| init::ones(t)),
                ),
                Self::tensor(
                    "bias",
                    |s| &s.bias,
                    |s| &mut s.bias,
                    TensorOptions::reset_with(|t| init::zeros(t)),
                ),
            ),
            |(weight, bias)| LayerNorm {
                weight,
                bias,
                epsilon: Self::EPSILON,
            },
        )
    }
}

impl<const M: usize, E: Element, D: Device<E>> TensorCollection<E, D> for RmsNorm<M, E, D> {
    type To<E2: Dtype, D2: Device<E2>> = RmsNorm<M, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::ones(t)),
            ),
            |weight| RmsNorm {
                weight,
                epsilon: Self::EPSILON,
            },
        )
    }
}

/// `E0` and `D0` are what the name stands for where it is only a name, as in a `type Model = (..)`.
impl<const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>> BuildOnDevice<D, E>
    for LayerNorm<M, E0, D0>
{
    type Built = LayerNorm<M, E, D>;
}

/// As for [`LayerNorm`].
impl<const M: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>> BuildOnDevice<D, E>
    for RmsNorm<M, E0, D0>
{
    type Built = RmsNorm<M, E, D>;
}
