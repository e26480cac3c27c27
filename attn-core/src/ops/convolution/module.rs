//! Convolutions with parameters.

use std::{fmt::Debug, marker::PhantomData};

use dfdx::{
    dtypes::Dtype,
    nn::{BuildOnDevice, Module, ModuleVisitor, NonMutableModule, TensorCollection, TensorOptions},
    shapes::{Const, Dim, HasShape, Rank1, Rank3, Rank4},
    tensor::{AutoDevice, Storage, Tape, Tensor},
    tensor_ops::Device,
};

use super::{Convolves, Kernel, Window, convolve, slices::Convolve};
use crate::{Backend, Element, Error, fused::Operation, init, model::weighted, ops::shape::dims};

/// How windows slide along an axis: a type that is a [`Window`].
pub trait Slides: Copy + Debug + Send + Sync + 'static {
    /// The stride, the dilation and the padding.
    const WINDOW: Window;
}

/// How windows slide along an axis, as a type.
///
/// ```
/// use attn::{nn::{Slide, Slides}, ops::Window};
///
/// assert_eq!(<Slide<2, 1, 1>>::WINDOW, Window { stride: 2, before: 1, after: 1, ..Window::default() });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Slide<
    const STRIDE: usize = 1,
    const BEFORE: usize = 0,
    const AFTER: usize = 0,
    const DILATION: usize = 1,
    const MORE: usize = 0,
>;

impl<
    const STRIDE: usize,
    const BEFORE: usize,
    const AFTER: usize,
    const DILATION: usize,
    const MORE: usize,
> Slides for Slide<STRIDE, BEFORE, AFTER, DILATION, MORE>
{
    const WINDOW: Window = Window {
        stride: STRIDE,
        dilation: DILATION,
        before: BEFORE,
        after: AFTER,
        more: MORE,
    };
}

/// A convolution `$Conv` with the sizes `$I` and `$O`, windows of `$K` and slides `$W`.
macro_rules! convolution {
    (
        $(#[$doc:meta])*
        $Conv:ident<$I:ident, $O:ident, [$($K:ident),+], [$($W:ident = $Default:ty),+]>:
        weight $Rank:ident<$A:ident, $B:ident>, fan $fan:ident, result $Out:ident [$($All:ident)?], bias [$($bias:ident)?],
        $kind:expr, $windows:expr,
        [$($Axis:ident),+] => [$($Result:ty),+]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $Conv<
            const $I: usize,
            const $O: usize,
            $(const $K: usize,)+
            $($W: Slides = $Default,)+
            $(const $All: usize = $O,)?
            E: Dtype = f32,
            D: Storage<E> = AutoDevice,
        > {
            /// The weight.
            pub weight: Tensor<$Rank<$A, $B, $($K),+>, E, D>,
            $(
                /// The bias.
                pub $bias: Tensor<Rank1<$Out>, E, D>,
            )?
            /// How the windows slide.
            pub slides: PhantomData<($($W,)+)>,
        }

        impl<const $I: usize, const $O: usize, $(const $K: usize,)+ $($W: Slides,)+ $(const $All: usize,)? E: Dtype, D: Storage<E>>
            $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>
        {
            /// The number of parameters.
            pub const PARAMS: usize = $I * $O $(* $K)+
                + $Out * ([$(stringify!($bias),)? ""].len() - 1);

            /// The numbers of the weight for each channel of its first axis: the fan of PyTorch.
            const FAN: usize = $fan $(* $K)+;
        }

        impl<const $I: usize, const $O: usize, $(const $K: usize,)+ $($W: Slides,)+ $(const $All: usize,)? E: Dtype, D: Storage<E>>
            Convolves<E, D> for $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>
        {
            type Weight = $Rank<$A, $B, $($K),+>;
            type Bias = Rank1<$Out>;

            fn weight(&self) -> &Tensor<Self::Weight, E, D> {
                &self.weight
            }

            fn bias(&self) -> Option<&Tensor<Self::Bias, E, D>> {
                [$(Some(&self.$bias),)? None][0]
            }

            fn kind(&self) -> (usize, bool) {
                $kind
            }

            fn windows(&self) -> [Window; 2] {
                $windows
            }
        }

        /// With the channels last.
        impl<
            const $I: usize,
            const $O: usize,
            $(const $K: usize,)+
            $($W: Slides,)+ $(const $All: usize,)?
            Batch: Dim,
            $($Axis: Dim,)+
            Channels: Dim,
            E: Element,
            D: Backend<E>,
            T: Tape<E, D>,
        > Module<Tensor<(Batch, $($Axis,)+ Channels), E, D, T>> for $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>
        {
            type Output = Tensor<(Batch, $($Result,)+ Const<$Out>), E, D, T>;
            type Error = D::Err;

            fn try_forward(
                &self,
                x: Tensor<(Batch, $($Axis,)+ Channels), E, D, T>,
            ) -> Result<Self::Output, D::Err> {
                let kernel = Kernel::of(self);
                let sizes = kernel.plan.result_of(&dims(x.shape()));
                let mut places = sizes.into_iter();
                let batch = x.shape().0;
                let to = (batch, $(<$Result>::from(places.next().unwrap_or_default()),)+ Const);
                let y = convolve(D::FUSED, x, &kernel, super::Channels::Last, to);
                y.map_err(Error::into_device)
            }
        }

        impl<const $I: usize, const $O: usize, $(const $K: usize,)+ $($W: Slides,)+ $(const $All: usize,)? E: Dtype, D: Storage<E>>
            NonMutableModule for $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>
        {
        }

        impl<const $I: usize, const $O: usize, $(const $K: usize,)+ $($W: Slides,)+ $(const $All: usize,)? E: Element, D: Device<E>>
            TensorCollection<E, D> for $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>
        {
            type To<E2: Dtype, D2: Device<E2>> = $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E2, D2>;

            fn iter_tensors<V: ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                visitor.visit_fields(
                    (
                        Self::tensor(
                            "weight",
                            |s| &s.weight,
                            |s| &mut s.weight,
                            TensorOptions::reset_with(|t| {
                                init::weight(t, |t| init::uniform(t, bound(Self::FAN)))
                            }),
                        ),
                        $(Self::tensor(
                            stringify!($bias),
                            |s| &s.$bias,
                            |s| &mut s.$bias,
                            TensorOptions::reset_with(|t| init::uniform(t, bound(Self::FAN))),
                        ),)?
                    ),
                    |(weight, $($bias,)?)| $Conv {
                        weight,
                        $($bias,)?
                        slides: PhantomData,
                    },
                )
            }
        }

        /// `E0` and `D0` are the defaults of the type's parameters, as in a `type Model = (..)`.
        impl<
            const $I: usize,
            const $O: usize,
            $(const $K: usize,)+
            $($W: Slides,)+ $(const $All: usize,)?
            E0: Dtype,
            D0: Storage<E0>,
            E: Element,
            D: Device<E>,
        > BuildOnDevice<D, E> for $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E0, D0>
        {
            type Built = $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>;
        }

        weighted! {
            [const $I: usize, const $O: usize, $(const $K: usize,)+ $($W: Slides),+ $(, const $All: usize)?]
            $Conv<$I, $O, $($K,)+ $($W,)+ $($All,)? E, D>:
                Convolve<E>, |layer, operation| Kernel::of(layer).read(operation)?;
        }
    };
}

/// A convolution with a bias, and one without.
macro_rules! convolutions {
    ($(
        $(#[$doc:meta])*
        $Conv:ident, $Unbiased:ident, $torch:literal: $rest:tt
    )*) => {$(
        convolutions!(@one [$(#[$doc])*] $Conv [bias] $rest);
        convolutions!(
            @one
            [
                #[doc = concat!("[`", stringify!($Conv), "`] without a bias. PyTorch: `torch.nn.", $torch, "(.., bias=False)`.")]
            ]
            $Unbiased [] $rest
        );
    )*};
    (
        @one [$(#[$doc:meta])*] $Conv:ident $bias:tt
        {
            $generics:tt, weight $Rank:ident<$A:ident, $B:ident>, fan $fan:ident, result $Out:ident $all:tt,
            $kind:expr, $windows:expr, $axes:tt => $results:tt
        }
    ) => {
        convolutions!(
            @generics [$(#[$doc])*] $Conv $bias $generics, ($Rank $A $B $fan $Out $all), $kind, $windows, $axes, $results
        );
    };
    (
        @generics [$(#[$doc:meta])*] $Conv:ident [$($bias:ident)?]
        ($I:ident, $O:ident, $K:tt, $W:tt), ($Rank:ident $A:ident $B:ident $fan:ident $Out:ident $all:tt), $kind:expr, $windows:expr, $axes:tt, $results:tt
    ) => {
        convolution! {
            $(#[$doc])*
            $Conv<$I, $O, $K, $W>:
            weight $Rank<$A, $B>, fan $fan, result $Out $all, bias [$($bias)?],
            $kind, $windows, $axes => $results
        }
    };
}

convolutions! {
    /// A convolution over an axis: [`conv1d`](crate::ops::conv1d) with its parameters. One operation on the tape.
    ///
    /// `I` is the number of channels of a group: an input has `I` channels, or `groups * I`.
    ///
    /// PyTorch: `torch.nn.Conv1d(I, O, K, stride, padding, dilation)`, with its names and initial values. Its channels come first; as a
    /// module of dfdx, this one takes the channels last. In a model, `channels = c` says where they are.
    ///
    /// | | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, len, I]` | |
    /// | output | `[batch, new, O]` | |
    /// | `weight` | `[O, I, K]` | uniform in `±1 / sqrt(I * K)` |
    /// | `bias` | `[O]` | the same |
    ///
    /// ```
    /// use attn::{dfdx::prelude::{Const, Cpu, DeviceBuildExt, HasShape, Module, Rank3, SampleTensor, Shape, Tensor}, nn::{Conv1d, Gelu, Slide}};
    ///
    /// /// The front of Whisper (Radford et al. 2022), with small sizes.
    /// type Front = (Conv1d<8, 16, 3, Slide<1, 1, 1>>, Gelu, Conv1d<16, 16, 3, Slide<2, 1, 1>>, Gelu);
    ///
    /// let dev = Cpu::default();
    /// let front = dev.build_module::<Front, f32>();
    /// let x: Tensor<Rank3<2, 30, 8>, f32, _> = dev.sample_normal();
    /// let y: Tensor<(Const<2>, usize, Const<16>), f32, _> = front.forward(x);
    /// assert_eq!(y.shape().concrete(), [2, 15, 16]);
    /// ```
    Conv1d, UnbiasedConv1d, "Conv1d": {
        (I, O, [K], [W = Slide]), weight Rank3<O, I>, fan I, result O [],
        (1, false), [Window::ONE, W::WINDOW], [L] => [usize]
    }

    /// A convolution over two axes: [`conv2d`](crate::ops::conv2d) with its parameters. One operation on the tape.
    ///
    /// `I` is the number of channels of a group: an input has `I` channels, or `groups * I`.
    ///
    /// PyTorch: `torch.nn.Conv2d(I, O, (H, W), stride, padding, dilation)`, with its names and initial values. Its channels come first; as a
    /// module of dfdx, this one takes the channels last. In a model, `channels = c` says where they are.
    ///
    /// | | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, height, width, I]` | |
    /// | output | `[batch, new, new, O]` | |
    /// | `weight` | `[O, I, H, W]` | uniform in `±1 / sqrt(I * H * W)` |
    /// | `bias` | `[O]` | the same |
    Conv2d, UnbiasedConv2d, "Conv2d": {
        (I, O, [H, W], [A = Slide, B = A]), weight Rank4<O, I>, fan I, result O [],
        (2, false), [A::WINDOW, B::WINDOW], [Y, X] => [usize, usize]
    }

    /// A transposed convolution over an axis: [`conv_transpose1d`](crate::ops::conv_transpose1d) with its parameters. One operation on the
    /// tape.
    ///
    /// `O` is the number of channels of the result in a group, and `C` their number in all groups.
    ///
    /// PyTorch: `torch.nn.ConvTranspose1d(I, O, K, stride, padding, output_padding)`, with its names and initial values. Its channels come
    /// first; as a module of dfdx, this one takes the channels last.
    ///
    /// | | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, len, I]` | |
    /// | output | `[batch, new, C]` | |
    /// | `weight` | `[I, O, K]` | uniform in `±1 / sqrt(O * K)` |
    /// | `bias` | `[C]` | the same |
    ConvTranspose1d, UnbiasedConvTranspose1d, "ConvTranspose1d": {
        (I, O, [K], [W = Slide]), weight Rank3<I, O>, fan O, result C [C],
        (1, true), [Window::ONE, W::WINDOW], [L] => [usize]
    }

    /// A transposed convolution over two axes: [`conv_transpose2d`](crate::ops::conv_transpose2d) with its parameters. One operation on the
    /// tape.
    ///
    /// `O` is the number of channels of the result in a group, and `C` their number in all groups.
    ///
    /// PyTorch: `torch.nn.ConvTranspose2d(I, O, (H, W), stride, padding, output_padding)`, with its names and initial values. Its channels
    /// come first; as a module of dfdx, this one takes the channels last.
    ///
    /// | | shape | initial value |
    /// | --- | --- | --- |
    /// | input | `[batch, height, width, I]` | |
    /// | output | `[batch, new, new, C]` | |
    /// | `weight` | `[I, O, H, W]` | uniform in `±1 / sqrt(O * H * W)` |
    /// | `bias` | `[C]` | the same |
    ConvTranspose2d, UnbiasedConvTranspose2d, "ConvTranspose2d": {
        (I, O, [H, W], [A = Slide, B = A]), weight Rank4<I, O>, fan O, result C [C],
        (2, true), [A::WINDOW, B::WINDOW], [Y, X] => [usize, usize]
    }
}

/// The bound of the initial values: that of PyTorch's `kaiming_uniform_(a=sqrt(5))`.
fn bound(inputs: usize) -> f64 {
    1.0 / (inputs.max(1) as f64).sqrt()
}
