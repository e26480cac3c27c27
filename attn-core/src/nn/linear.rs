//! Affine maps with their parameters.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{Const, Rank1, Rank2},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error, init,
    ops::{Affine, EndsIn, try_linear},
};

/// `y = x Wᵀ + b`, for vectors of `I` numbers to vectors of `O`. One operation of the tape.
///
/// PyTorch: `torch.nn.Linear(I, O)`, with its names and initial values.
///
/// | | shape | at first |
/// | --- | --- | --- |
/// | input | `[.., I]`, of one to four axes | |
/// | output | `[.., O]` | |
/// | `weight` | `[O, I]` | uniform in `±1 / sqrt(I)` |
/// | `bias` | `[O]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::{Gelu, Linear}};
///
/// type Model = (Linear<8, 32>, Gelu, Linear<32, 8>);
///
/// let dev = Cpu::default();
/// let model = dev.build_module::<Model, f32>();
/// let x: Tensor<(usize, usize, Const<8>), f32, _> = dev.sample_normal_like(&(2, 5, Const));
/// let y: Tensor<(usize, usize, Const<8>), f32, _> = model.forward(x);
/// ```
#[doc(alias = "Dense")]
#[derive(Clone, Debug)]
pub struct Linear<const I: usize, const O: usize, E: Dtype = f32, D: Storage<E> = AutoDevice> {
    /// The matrix.
    pub weight: Tensor<Rank2<O, I>, E, D>,
    /// What is added.
    pub bias: Tensor<Rank1<O>, E, D>,
}

/// `y = x Wᵀ`: [`Linear`] without a bias.
///
/// PyTorch: `torch.nn.Linear(I, O, bias=False)`, with its name and initial values.
///
/// | | shape | at first |
/// | --- | --- | --- |
/// | input | `[.., I]`, of one to four axes | |
/// | output | `[.., O]` | |
/// | `weight` | `[O, I]` | uniform in `±1 / sqrt(I)` |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::UnbiasedLinear};
///
/// let dev = Cpu::default();
/// let head = dev.build_module::<UnbiasedLinear<8, 65>, f32>();
/// let logits: Tensor<Rank1<65>, f32, _> = head.forward(dev.zeros::<Rank1<8>>());
/// assert_eq!(logits.array(), [0.0; 65]);
/// ```
#[derive(Clone, Debug)]
pub struct UnbiasedLinear<
    const I: usize,
    const O: usize,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The matrix.
    pub weight: Tensor<Rank2<O, I>, E, D>,
}

/// What PyTorch's `kaiming_uniform_(a=sqrt(5))` comes to.
fn bound(inputs: usize) -> f64 {
    1.0 / (inputs.max(1) as f64).sqrt()
}

impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> Linear<I, O, E, D> {
    /// How many numbers it learns.
    pub const PARAMS: usize = O * I + O;
}

impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> UnbiasedLinear<I, O, E, D> {
    /// How many numbers it learns.
    pub const PARAMS: usize = O * I;
}

impl<const I: usize, const O: usize, E: Element, D: Backend<E>> Linear<I, O, E, D> {
    /// Its parameters, for operations such as [`feed_forward`](crate::ops::feed_forward).
    pub fn affine(&self) -> Affine<'_, I, O, E, D> {
        Affine {
            weight: &self.weight,
            bias: Some(&self.bias),
        }
    }
}

impl<const I: usize, const O: usize, E: Element, D: Backend<E>> UnbiasedLinear<I, O, E, D> {
    /// Its parameters, for operations such as [`feed_forward`](crate::ops::feed_forward).
    pub fn affine(&self) -> Affine<'_, I, O, E, D> {
        Affine {
            weight: &self.weight,
            bias: None,
        }
    }
}

impl<'a, const I: usize, const O: usize, E: Element, D: Backend<E>> From<&'a Linear<I, O, E, D>>
    for Affine<'a, I, O, E, D>
{
    fn from(layer: &'a Linear<I, O, E, D>) -> Self {
        layer.affine()
    }
}

impl<'a, const I: usize, const O: usize, E: Element, D: Backend<E>>
    From<&'a UnbiasedLinear<I, O, E, D>> for Affine<'a, I, O, E, D>
{
    fn from(layer: &'a UnbiasedLinear<I, O, E, D>) -> Self {
        layer.affine()
    }
}

impl<const I: usize, const O: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for Linear<I, O, E, D>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<O>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_linear(x, &self.weight, Some(&self.bias)).map_err(Error::into_device)
    }
}

impl<const I: usize, const O: usize, S, E, D, T> Module<Tensor<S, E, D, T>>
    for UnbiasedLinear<I, O, E, D>
where
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<O>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        try_linear(x, &self.weight, None).map_err(Error::into_device)
    }
}

impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> NonMutableModule
    for Linear<I, O, E, D>
{
}

impl<const I: usize, const O: usize, E: Dtype, D: Storage<E>> NonMutableModule
    for UnbiasedLinear<I, O, E, D>
{
}

impl<const I: usize, const O: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for Linear<I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = Linear<I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            (
                Self::tensor(
                    "weight",
                    |s| &s.weight,
                    |s| &mut s.weight,
                    TensorOptions::reset_with(|t| init::matrix(t, |t| init::uniform(t, bound(I)))),
                ),
                Self::tensor(
                    "bias",
                    |s| &s.bias,
                    |s| &mut s.bias,
                    TensorOptions::reset_with(|t| init::uniform(t, bound(I))),
                ),
            ),
            |(weight, bias)| Linear { weight, bias },
        )
    }
}

impl<const I: usize, const O: usize, E: Element, D: Device<E>> TensorCollection<E, D>
    for UnbiasedLinear<I, O, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = UnbiasedLinear<I, O, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            Self::tensor(
                "weight",
                |s| &s.weight,
                |s| &mut s.weight,
                TensorOptions::reset_with(|t| init::matrix(t, |t| init::uniform(t, bound(I)))),
            ),
            |weight| UnbiasedLinear { weight },
        )
    }
}

/// `E0` and `D0` are what the name stands for where it is only a name, as in a `type Model = (..)`.
impl<const I: usize, const O: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
    BuildOnDevice<D, E> for Linear<I, O, E0, D0>
{
    type Built = Linear<I, O, E, D>;
}

/// As for [`Linear`].
impl<const I: usize, const O: usize, E0: Dtype, D0: Storage<E0>, E: Element, D: Device<E>>
    BuildOnDevice<D, E> for UnbiasedLinear<I, O, E0, D0>
{
    type Built = UnbiasedLinear<I, O, E, D>;
}
