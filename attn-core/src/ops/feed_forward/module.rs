//! Feed-forward layers with parameters.

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection},
    shapes::Const,
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use super::{
    slices::{self, HiddenLayer},
    try_feed_forward, try_gated_feed_forward,
};
use crate::{
    Backend, Element, Error,
    fused::Operation,
    model::weighted,
    ops::{
        Activation, EndsIn, Gelu, Silu,
        linear::{Linear, UnbiasedLinear},
    },
};

/// `down_proj(act(up_proj(x)))`: a map from `M` to `H` numbers, a nonlinearity, and a map back. One operation on the tape. It saves `H`
/// numbers per vector, and recomputes the activations in the backward pass.
///
/// Vaswani et al., "Attention is all you need" (2017), section 3.3. PyTorch:
/// `Sequential(Linear(M, H), act(), Linear(H, M))`. The default activation is [`Gelu`]. The layer of GPT-2 has
/// [`GeluTanh`](crate::nn::GeluTanh), that of the first transformers [`Relu`](crate::nn::Relu).
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `up_proj.weight`, `up_proj.bias` | `[H, M]`, `[H]` | as in [`Linear`] |
/// | `down_proj.weight`, `down_proj.bias` | `[M, H]`, `[M]` | as in [`Linear`] |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::{FeedForward, GeluTanh}};
///
/// let dev = Cpu::default();
/// let layer = dev.build_module::<FeedForward<8, 32, GeluTanh>, f32>();
/// let x: Tensor<(usize, Const<8>), f32, _> = dev.sample_normal_like(&(5, Const));
/// let y: Tensor<(usize, Const<8>), f32, _> = layer.forward(x);
/// assert_eq!(layer.num_trainable_params(), FeedForward::<8, 32>::PARAMS);
/// ```
#[doc(alias("MLP", "PositionwiseFeedForward"))]
#[derive(Clone, Debug)]
pub struct FeedForward<
    const M: usize,
    const H: usize,
    A = Gelu,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The map to `H` numbers.
    pub up_proj: Linear<M, H, E, D>,
    /// The nonlinearity.
    pub activation: A,
    /// The map back to `M` numbers.
    pub down_proj: Linear<H, M, E, D>,
}

/// `down_proj(act(gate_proj(x)) * up_proj(x))`: a gated feed-forward layer without biases. One operation on the tape; `gate_proj` and
/// `up_proj` are one product.
///
/// Shazeer, "GLU variants improve transformer" (2020). The default activation is [`Silu`]. This is the layer of LLaMA, with the same
/// names: `LlamaMLP` of the library `transformers`.
///
/// | | shape | initial value |
/// | --- | --- | --- |
/// | input, output | `[.., M]`, of one to four axes | |
/// | `gate_proj.weight`, `up_proj.weight` | `[H, M]` | as in [`UnbiasedLinear`] |
/// | `down_proj.weight` | `[M, H]` | as in [`UnbiasedLinear`] |
///
/// ```
/// use attn::{dfdx::prelude::*, nn::GatedFeedForward};
///
/// let dev = Cpu::default();
/// let layer = dev.build_module::<GatedFeedForward<8, 21>, f32>();
/// let x: Tensor<(usize, Const<8>), f32, _> = dev.sample_normal_like(&(5, Const));
/// let y: Tensor<(usize, Const<8>), f32, _> = layer.forward(x);
/// assert_eq!(layer.num_trainable_params(), GatedFeedForward::<8, 21>::PARAMS);
/// ```
#[doc(alias("LlamaMLP", "GLU"))]
#[derive(Clone, Debug)]
pub struct GatedFeedForward<
    const M: usize,
    const H: usize,
    A = Silu,
    E: Dtype = f32,
    D: Storage<E> = AutoDevice,
> {
    /// The projection of the gate.
    pub gate_proj: UnbiasedLinear<M, H, E, D>,
    /// The gated projection.
    pub up_proj: UnbiasedLinear<M, H, E, D>,
    /// The nonlinearity of the gate.
    pub activation: A,
    /// The map back to `M` numbers.
    pub down_proj: UnbiasedLinear<H, M, E, D>,
}

impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> FeedForward<M, H, A, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = 2 * M * H + H + M;
}

impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> GatedFeedForward<M, H, A, E, D> {
    /// The number of parameters.
    pub const PARAMS: usize = 3 * M * H;
}

impl<const M: usize, const H: usize, A, S, E, D, T> Module<Tensor<S, E, D, T>>
    for FeedForward<M, H, A, E, D>
where
    A: Activation,
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<M>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        let up = self.up_proj.affine();
        let down = self.down_proj.affine();
        try_feed_forward::<A, S, M, H, M, E, D, T>(x, up, down).map_err(Error::into_device)
    }
}

impl<const M: usize, const H: usize, A, S, E, D, T> Module<Tensor<S, E, D, T>>
    for GatedFeedForward<M, H, A, E, D>
where
    A: Activation,
    S: EndsIn<M>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    type Output = Tensor<S::With<Const<M>>, E, D, T>;
    type Error = D::Err;

    fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
        let gate = self.gate_proj.affine();
        let up = self.up_proj.affine();
        let down = self.down_proj.affine();
        try_gated_feed_forward::<A, S, M, H, M, E, D, T>(x, gate, up, down)
            .map_err(Error::into_device)
    }
}

impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> NonMutableModule
    for FeedForward<M, H, A, E, D>
{
}

impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> NonMutableModule
    for GatedFeedForward<M, H, A, E, D>
{
}

impl<const M: usize, const H: usize, A: Default, E: Element, D: Device<E>> TensorCollection<E, D>
    for FeedForward<M, H, A, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = FeedForward<M, H, A, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            (
                Self::module("up_proj", |s| &s.up_proj, |s| &mut s.up_proj),
                Self::module("down_proj", |s| &s.down_proj, |s| &mut s.down_proj),
            ),
            |(up_proj, down_proj)| FeedForward {
                up_proj,
                activation: A::default(),
                down_proj,
            },
        )
    }
}

impl<const M: usize, const H: usize, A: Default, E: Element, D: Device<E>> TensorCollection<E, D>
    for GatedFeedForward<M, H, A, E, D>
{
    type To<E2: Dtype, D2: Device<E2>> = GatedFeedForward<M, H, A, E2, D2>;

    fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
        visitor: &mut V,
    ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
        visitor.visit_fields(
            (
                Self::module("gate_proj", |s| &s.gate_proj, |s| &mut s.gate_proj),
                Self::module("up_proj", |s| &s.up_proj, |s| &mut s.up_proj),
                Self::module("down_proj", |s| &s.down_proj, |s| &mut s.down_proj),
            ),
            |(gate_proj, up_proj, down_proj)| GatedFeedForward {
                gate_proj,
                up_proj,
                activation: A::default(),
                down_proj,
            },
        )
    }
}

/// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
impl<const M: usize, const H: usize, A: Default, E0: Dtype, D0: Storage<E0>, E, D>
    BuildOnDevice<D, E> for FeedForward<M, H, A, E0, D0>
where
    E: Element,
    D: Device<E>,
{
    type Built = FeedForward<M, H, A, E, D>;
}

/// See [`FeedForward`].
impl<const M: usize, const H: usize, A: Default, E0: Dtype, D0: Storage<E0>, E, D>
    BuildOnDevice<D, E> for GatedFeedForward<M, H, A, E0, D0>
where
    E: Element,
    D: Device<E>,
{
    type Built = GatedFeedForward<M, H, A, E, D>;
}

weighted! {
    [const M: usize, const H: usize, A: Activation] FeedForward<M, H, A, E, D>:
        slices::FeedForward<A::Kernel, E>, |layer, operation| slices::FeedForward {
            up: operation.projection(&[&layer.up_proj])?,
            middle: HiddenLayer {
                activation: A::KERNEL,
                gated: false,
                width: H,
            },
            down: operation.projection(&[&layer.down_proj])?,
        };

    [const M: usize, const H: usize, A: Activation] GatedFeedForward<M, H, A, E, D>:
        slices::FeedForward<A::Kernel, E>, |layer, operation| slices::FeedForward {
            up: operation.projection(&[&layer.gate_proj, &layer.up_proj])?,
            middle: HiddenLayer {
                activation: A::KERNEL,
                gated: true,
                width: H,
            },
            down: operation.projection(&[&layer.down_proj])?,
        };
}
