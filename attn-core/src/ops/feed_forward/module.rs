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
        Activation, Affine, EndsIn, Gelu, Silu,
        linear::{Linear, UnbiasedLinear},
    },
};

/// A feed-forward layer with two maps, from `M` to `H` numbers and back.
pub trait UngatedMaps<const M: usize, const H: usize, E: Dtype, D: Storage<E>> {
    /// The nonlinearity between them.
    type Activation;

    /// `up` and `down`.
    fn maps(&self) -> (Affine<'_, M, H, E, D>, Affine<'_, H, M, E, D>);
}

/// A gated feed-forward layer, from `M` to `H` numbers and back.
pub trait GatedMaps<const M: usize, const H: usize, E: Dtype, D: Storage<E>> {
    /// The nonlinearity of the gate.
    type Activation;

    /// `gate`, `up` and `down`.
    #[allow(clippy::type_complexity, reason = "three maps")]
    fn maps(
        &self,
    ) -> (
        Affine<'_, M, H, E, D>,
        Affine<'_, M, H, E, D>,
        Affine<'_, H, M, E, D>,
    );
}

/// A layer with maps of the type `$Map`: `$up` from `M` to `H` numbers, and `down_proj` back.
macro_rules! layers {
    ($(
        $(#[$doc:meta])*
        $Layer:ident = $Default:ident, $Map:ident, $Maps:ident, $run:ident, $gated:literal:
        $($(#[$about:meta])* $up:ident),+; $params:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Layer<
            const M: usize,
            const H: usize,
            A = $Default,
            E: Dtype = f32,
            D: Storage<E> = AutoDevice,
        > {
            $(
                $(#[$about])*
                pub $up: $Map<M, H, E, D>,
            )+
            /// The nonlinearity.
            pub activation: A,
            /// The map back to `M` numbers.
            pub down_proj: $Map<H, M, E, D>,
        }

        impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> $Layer<M, H, A, E, D> {
            /// The number of parameters.
            pub const PARAMS: usize = $params;
        }

        impl<const M: usize, const H: usize, A, S, E, D, T> Module<Tensor<S, E, D, T>> for $Layer<M, H, A, E, D>
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
                let down = self.down_proj.affine();
                $run::<A, S, M, H, M, E, D, T>(x, $(self.$up.affine(),)+ down)
                    .map_err(Error::into_device)
            }
        }

        impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> NonMutableModule for $Layer<M, H, A, E, D> {}

        impl<const M: usize, const H: usize, A: Default, E: Element, D: Device<E>> TensorCollection<E, D>
            for $Layer<M, H, A, E, D>
        {
            type To<E2: Dtype, D2: Device<E2>> = $Layer<M, H, A, E2, D2>;

            fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                visitor.visit_fields(
                    (
                        $(Self::module(stringify!($up), |s| &s.$up, |s| &mut s.$up),)+
                        Self::module("down_proj", |s| &s.down_proj, |s| &mut s.down_proj),
                    ),
                    |($($up,)+ down_proj)| $Layer {
                        $($up,)+
                        activation: A::default(),
                        down_proj,
                    },
                )
            }
        }

        /// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
        impl<const M: usize, const H: usize, A: Default, E0: Dtype, D0: Storage<E0>, E, D> BuildOnDevice<D, E>
            for $Layer<M, H, A, E0, D0>
        where
            E: Element,
            D: Device<E>,
        {
            type Built = $Layer<M, H, A, E, D>;
        }

        impl<const M: usize, const H: usize, A, E: Dtype, D: Storage<E>> $Maps<M, H, E, D> for $Layer<M, H, A, E, D> {
            type Activation = A;

            fn maps(&self) -> maps!(E, D, $($up)+) {
                ($(self.$up.affine(),)+ self.down_proj.affine())
            }
        }

        weighted! {
            [const M: usize, const H: usize, A: Activation] $Layer<M, H, A, E, D>:
                slices::FeedForward<A::Kernel, E>, |layer, operation| slices::FeedForward {
                    up: operation.projection(&[$(&layer.$up),+])?,
                    middle: HiddenLayer {
                        activation: A::KERNEL,
                        gated: $gated,
                        width: H,
                    },
                    down: operation.projection(&[&layer.down_proj])?,
                };
        }
    )*};
}

/// The type of the maps of a layer.
macro_rules! maps {
    ($E:ident, $D:ident, $up:ident) => {
        (Affine<'_, M, H, $E, $D>, Affine<'_, H, M, $E, $D>)
    };
    ($E:ident, $D:ident, $gate:ident $up:ident) => {
        (Affine<'_, M, H, $E, $D>, Affine<'_, M, H, $E, $D>, Affine<'_, H, M, $E, $D>)
    };
}

layers! {
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
    FeedForward = Gelu, Linear, UngatedMaps, try_feed_forward, false:
    /// The map to `H` numbers.
    up_proj; 2 * M * H + H + M;

    /// [`FeedForward`] without biases. PyTorch: `Sequential(Linear(M, H, bias=False), act(), Linear(H, M, bias=False))`.
    UnbiasedFeedForward = Gelu, UnbiasedLinear, UngatedMaps, try_feed_forward, false:
    /// The map to `H` numbers.
    up_proj; 2 * M * H;

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
    GatedFeedForward = Silu, UnbiasedLinear, GatedMaps, try_gated_feed_forward, true:
    /// The projection of the gate.
    gate_proj,
    /// The gated projection.
    up_proj; 3 * M * H;

    /// [`GatedFeedForward`] with biases: `LlamaMLP` of the library `transformers` with `mlp_bias=True`.
    BiasedGatedFeedForward = Silu, Linear, GatedMaps, try_gated_feed_forward, true:
    /// The projection of the gate.
    gate_proj,
    /// The gated projection.
    up_proj; 3 * M * H + 2 * H + M;
}
