//! Norms with parameters.

use std::marker::PhantomData;

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::Rank1,
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use super::{
    Gain, GroupNormalization, GroupNormalizes, NormKind, Normalization, Normalizes,
    group::group_norm_of_last, group::slices::GroupNorm as FusedGroupNorm, slices::Norm,
    try_normalize,
};
use crate::{Backend, Element, Error, fused::Operation, init, model::weighted, ops::EndsIn};

/// A norm of `$M` channels, perhaps in `$G` groups: its struct, its constants, and what dfdx asks of a module.
///
/// `weight` and `bias` are named if they are there, the former with its initial value. `elements` is named in a norm without either, which
/// would not mention its type of numbers.
macro_rules! module {
    (
        $(#[$doc:meta])*
        $Norm:ident[$M:ident $($G:ident)?], $epsilon:literal:
        [$($weight:ident = $initial:ident)?] [$($bias:ident)?] [$($elements:ident)?]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Norm<
            const $M: usize,
            $(const $G: usize,)?
            E: Dtype = f32,
            D: Storage<E> = AutoDevice,
        > {
            $(
                /// The gain.
                pub $weight: Tensor<Rank1<$M>, E, D>,
            )?
            $(
                /// The bias.
                pub $bias: Tensor<Rank1<$M>, E, D>,
            )?
            /// Added to the variance or to the mean square; initially [`EPSILON`](Self::EPSILON), or the value in a declaration of
            /// `model!`. It is not saved, and a copy on another device or of another type has the initial value.
            pub epsilon: f64,
            $(
                /// The type of the numbers.
                pub $elements: PhantomData<(E, D)>,
            )?
        }

        impl<const $M: usize, $(const $G: usize,)? E: Dtype, D: Storage<E>> $Norm<$M, $($G,)? E, D> {
            /// The number of parameters.
            pub const PARAMS: usize = $M * [$(stringify!($weight),)? $(stringify!($bias),)? ""].len() - $M;
            /// The default epsilon.
            pub const EPSILON: f64 = $epsilon;

            /// Sets the epsilon, which must be greater than 0.
            pub fn with_epsilon(self, epsilon: f64) -> Self {
                Self { epsilon, ..self }
            }
        }

        impl<const $M: usize, $(const $G: usize,)? E: Dtype, D: Storage<E>> NonMutableModule
            for $Norm<$M, $($G,)? E, D>
        {
        }

        impl<const $M: usize, $(const $G: usize,)? E: Element, D: Device<E>> TensorCollection<E, D>
            for $Norm<$M, $($G,)? E, D>
        {
            type To<E2: Dtype, D2: Device<E2>> = $Norm<$M, $($G,)? E2, D2>;

            fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                visitor.visit_fields(
                    (
                        $(Self::tensor(
                            stringify!($weight),
                            |s| &s.$weight,
                            |s| &mut s.$weight,
                            TensorOptions::reset_with(|t| init::$initial(t)),
                        ),)?
                        $(Self::tensor(
                            stringify!($bias),
                            |s| &s.$bias,
                            |s| &mut s.$bias,
                            TensorOptions::reset_with(|t| init::zeros(t)),
                        ),)?
                    ),
                    |($($weight,)? $($bias,)?)| $Norm {
                        $($weight,)?
                        $($bias,)?
                        epsilon: Self::EPSILON,
                        $($elements: PhantomData,)?
                    },
                )
            }
        }

        /// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
        impl<const $M: usize, $(const $G: usize,)? E0: Dtype, D0: Storage<E0>, E, D> BuildOnDevice<D, E>
            for $Norm<$M, $($G,)? E0, D0>
        where
            E: Element,
            D: Device<E>,
        {
            type Built = $Norm<$M, $($G,)? E, D>;
        }
    };
}

/// The gain and the bias of a norm, as [`Normalization`] has them.
macro_rules! learned {
    ($layer:ident, gain $($Gain:ident($weight:ident))?) => {
        [$(Gain::$Gain(&$layer.$weight),)? Gain::One][0]
    };
    ($layer:ident, bias $($bias:ident)?) => {
        [$(Some(&$layer.$bias),)? None][0]
    };
}

/// Norms of vectors.
macro_rules! vector_norms {
    ($(
        $(#[$doc:meta])*
        $Norm:ident, $Kind:ident, $epsilon:literal:
        [$($Gain:ident($weight:ident) = $initial:ident)?] [$($bias:ident)?] [$($elements:ident)?];
    )*) => {$(
        module! {
            $(#[$doc])*
            $Norm[M], $epsilon: [$($weight = $initial)?] [$($bias)?] [$($elements)?]
        }

        impl<const M: usize, E: Dtype, D: Storage<E>> Normalizes<M, E, D> for $Norm<M, E, D> {
            fn normalization(&self) -> Normalization<'_, M, E, D> {
                Normalization {
                    kind: NormKind::$Kind,
                    gain: learned!(self, gain $($Gain($weight))?),
                    bias: learned!(self, bias $($bias)?),
                    epsilon: self.epsilon,
                }
            }
        }

        impl<const M: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for $Norm<M, E, D>
        where
            S: EndsIn<M>,
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        {
            type Output = Tensor<S, E, D, T>;
            type Error = D::Err;

            fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                try_normalize(x, self.normalization()).map_err(Error::into_device)
            }
        }

        weighted! {
            [const M: usize] $Norm<M, E, D>:
                Norm<E>, |layer, operation| layer.normalization().read(operation)?;
        }
    )*};
}

/// Norms of groups of channels.
macro_rules! group_norms {
    ($(
        $(#[$doc:meta])*
        $Norm:ident:
        [$($Gain:ident($weight:ident) = $initial:ident)?] [$($bias:ident)?] [$($elements:ident)?];
    )*) => {$(
        module! {
            $(#[$doc])*
            $Norm[C G], 1e-5: [$($weight = $initial)?] [$($bias)?] [$($elements)?]
        }

        impl<const C: usize, const G: usize, E: Dtype, D: Storage<E>> GroupNormalizes<C, E, D>
            for $Norm<C, G, E, D>
        {
            fn group_normalization(&self) -> GroupNormalization<'_, C, E, D> {
                GroupNormalization {
                    groups: G,
                    gain: learned!(self, gain $($Gain($weight))?),
                    bias: learned!(self, bias $($bias)?),
                    epsilon: self.epsilon,
                }
            }
        }

        impl<const C: usize, const G: usize, S, E, D, T> Module<Tensor<S, E, D, T>>
            for $Norm<C, G, E, D>
        where
            S: EndsIn<C>,
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        {
            type Output = Tensor<S, E, D, T>;
            type Error = D::Err;

            fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                group_norm_of_last(x, self.group_normalization()).map_err(Error::into_device)
            }
        }

        weighted! {
            [const C: usize, const G: usize] $Norm<C, G, E, D>:
                FusedGroupNorm<E>, |layer, operation| layer.group_normalization().read(operation)?;
        }
    )*};
}

vector_norms! {
    /// `(x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias` over the last axis: [`ops::layer_norm`](crate::ops::layer_norm)
    /// with its parameters. One operation on the tape.
    ///
    /// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch: `torch.nn.LayerNorm(M)`, with its names and initial
    /// values. (In dfdx's `LayerNorm1D` the names are `gamma` and `beta`.)
    ///
    /// | | shape | initial value |
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
    LayerNorm, Layer, 1e-5: [Factor(weight) = ones] [bias] [];

    /// [`LayerNorm`] without a bias. PyTorch: `torch.nn.LayerNorm(M, bias=False)`.
    UnbiasedLayerNorm, Layer, 1e-5: [Factor(weight) = ones] [] [];

    /// [`LayerNorm`] without parameters: `(x - mean(x)) / sqrt(var(x) + epsilon)`. PyTorch:
    /// `torch.nn.LayerNorm(M, elementwise_affine=False)`.
    PlainLayerNorm, Layer, 1e-5: [] [] [elements];

    /// [`LayerNorm`] without a gain. Flax: `nn.LayerNorm(use_scale=False)`.
    UngainedLayerNorm, Layer, 1e-5: [] [bias] [];

    /// [`LayerNorm`] with the factor `1 + weight`, where `weight` is 0 before training (`LayerNorm1P` of NVIDIA's Nemotron).
    OnePlusLayerNorm, Layer, 1e-5: [OnePlus(weight) = zeros] [bias] [];

    /// [`OnePlusLayerNorm`] without a bias.
    UnbiasedOnePlusLayerNorm, Layer, 1e-5: [OnePlus(weight) = zeros] [] [];

    /// `x / sqrt(mean(x²) + epsilon) * weight` over the last axis: [`ops::rms_norm`](crate::ops::rms_norm) with its
    /// parameter. One operation on the tape.
    ///
    /// Zhang and Sennrich, "Root mean square layer normalization" (2019). PyTorch: `torch.nn.RMSNorm(M, eps=1e-6)`, with its
    /// name and initial values. The default epsilon is that of LLaMA and most other models.
    ///
    /// | | shape | initial value |
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
    RmsNorm, Rms, 1e-6: [Factor(weight) = ones] [] [];

    /// [`RmsNorm`] without a gain. PyTorch: `torch.nn.RMSNorm(M, eps=1e-6, elementwise_affine=False)`.
    PlainRmsNorm, Rms, 1e-6: [] [] [elements];

    /// [`RmsNorm`] with the factor `1 + weight`, where `weight` is 0 before training: `GemmaRMSNorm` of the library `transformers`.
    OnePlusRmsNorm, Rms, 1e-6: [OnePlus(weight) = zeros] [] [];
}

group_norms! {
    /// `(x - mean) / sqrt(var + epsilon) * weight + bias`, with the mean and the variance of each of `G` groups of the last axis, of `C`
    /// channels. For channels at another axis, and what is behind it, there is [`ops::group_norm`](crate::ops::group_norm).
    ///
    /// Wu and He, "Group normalization" (2018). PyTorch: `torch.nn.GroupNorm(G, C)` of vectors `[N, C]`, with its names and initial values.
    ///
    /// | | shape | initial value |
    /// | --- | --- | --- |
    /// | input, output | `[.., C]`, of one to four axes | |
    /// | `weight` | `[C]` | 1 |
    /// | `bias` | `[C]` | 0 |
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::GroupNorm};
    ///
    /// let dev = Cpu::default();
    /// let norm = dev.build_module::<GroupNorm<4, 2>, f32>();
    /// let y = norm.forward(dev.tensor([[1.0, 3.0, 10.0, 30.0]]));
    /// assert!(y.array()[0].map(f32::round) == [-1.0, 1.0, -1.0, 1.0]);
    /// ```
    GroupNorm: [Factor(weight) = ones] [bias] [];

    /// [`GroupNorm`] without a bias.
    UnbiasedGroupNorm: [Factor(weight) = ones] [] [];

    /// [`GroupNorm`] without parameters. PyTorch: `torch.nn.GroupNorm(G, C, affine=False)`.
    PlainGroupNorm: [] [] [elements];

    /// [`GroupNorm`] without a gain.
    UngainedGroupNorm: [] [bias] [];

    /// [`GroupNorm`] with the factor `1 + weight`, where `weight` is 0 before training.
    OnePlusGroupNorm: [OnePlus(weight) = zeros] [bias] [];

    /// [`OnePlusGroupNorm`] without a bias.
    UnbiasedOnePlusGroupNorm: [OnePlus(weight) = zeros] [] [];
}
