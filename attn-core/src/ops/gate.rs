//! Gated linear units.

use dfdx::{
    nn::{Module, NonMutableModule, ZeroSizedModule},
    shapes::{Const, ConstDim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, zeros},
    kernel::{Buffer, Matrix, MatrixMut, activation as kernel},
    ops::{Activation, Gelu, GeluTanh, LastAxis, Relu, Silu, check_shape},
    unwrap,
};

/// `y = act(left) * right` for the halves of the last axis: `x [.., 2 H]` to `y [.., H]`.
///
/// Dauphin et al., "Language modeling with gated convolutional networks" (2016); Shazeer, "GLU variants improve
/// transformer" (2020). PyTorch: `left, right = x.chunk(2, dim=-1); act(left) * right`. (`torch.nn.functional.glu`
/// has the gate on the right.)
///
/// A last axis of the wrong size is an error when the program is built; `cargo check` does not report it.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Sigmoid, gate}};
///
/// let x: Tensor<Rank2<1, 4>, f32, _> = Cpu::default().tensor([[0.0, 200.0, 2.0, 3.0]]);
/// let y: Tensor<Rank2<1, 2>, f32, _> = gate::<Sigmoid, 2, _, _, _, _>(x);
/// assert_eq!(y.array(), [[1.0, 3.0]]);
/// ```
///
/// # Panics
/// If [`try_gate`] returns an error.
#[doc(alias = "glu")]
#[track_caller]
pub fn gate<A: Activation, const H: usize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<S::With<Const<H>>, E, D, T>
where
    S: LastAxis<Last: ConstDim>,
{
    unwrap(try_gate::<A, H, S, E, D, T>(x))
}

/// The fallible version of [`gate`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_gate<A: Activation, const H: usize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S::With<Const<H>>, E, D, T>, Error<D::Err>>
where
    S: LastAxis<Last: ConstDim>,
{
    const {
        assert!(
            <S::Last as ConstDim>::SIZE == 2 * H,
            "the last axis of x has to be twice as long as that of the result"
        );
    }
    check_shape("gate", x.shape())?;
    if !D::FUSED {
        return Ok(composed::gate::<A, H, S, E, D, T>(x)?);
    }
    let device = x.device().clone();
    let shape = x.shape().with_last(Const::<H>);
    let rows = x.shape().leading().num_elements();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(rows * H);
    kernel::gated_forward(
        A::KERNEL,
        Matrix::new(x.values(), rows, 2 * H),
        &Buffer::zeros(2 * H),
        MatrixMut::new(&mut y, rows, H),
    );
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        x.target().overwrite(gradients, |d_x| {
            kernel::gated_backward(
                A::KERNEL,
                Matrix::new(x.values(), rows, 2 * H),
                Matrix::new(d_y, rows, H),
                MatrixMut::new(d_x, rows, 2 * H),
            );
        })
    })?)
}

macro_rules! gates {
    ($($(#[$doc:meta])* $name:ident, $try_name:ident, $Activation:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// `left` and `right` are the halves of the last axis: `x [.., 2 H]` to `[.., H]`; see [`gate`].
            /// Shazeer, "GLU variants improve transformer" (2020).
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name), "`] returns an error.")]
            #[track_caller]
            pub fn $name<const H: usize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
            ) -> Tensor<S::With<Const<H>>, E, D, T>
            where
                S: LastAxis<Last: ConstDim>,
            {
                gate::<$Activation, H, S, E, D, T>(x)
            }

            #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The errors of [`try_gate`].
            pub fn $try_name<const H: usize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
            ) -> Result<Tensor<S::With<Const<H>>, E, D, T>, Error<D::Err>>
            where
                S: LastAxis<Last: ConstDim>,
            {
                try_gate::<$Activation, H, S, E, D, T>(x)
            }
        )*
    };
}

gates! {
    /// `silu(left) * right`, as in LLaMA.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::swiglu};
    ///
    /// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().tensor([0.0, 200.0, 7.0, 0.5]);
    /// assert_eq!(swiglu::<2, _, _, _, _>(x).array(), [0.0, 100.0]);
    /// ```
    swiglu, try_swiglu, Silu;

    /// `gelu(left) * right`
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::geglu};
    ///
    /// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().tensor([0.0, 200.0, 7.0, 0.5]);
    /// assert_eq!(geglu::<2, _, _, _, _>(x).array(), [0.0, 100.0]);
    /// ```
    geglu, try_geglu, Gelu;

    /// `gelu_tanh(left) * right`, as in Gemma.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::geglu_tanh};
    ///
    /// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().tensor([0.0, 200.0, 7.0, 0.5]);
    /// assert_eq!(geglu_tanh::<2, _, _, _, _>(x).array(), [0.0, 100.0]);
    /// ```
    geglu_tanh, try_geglu_tanh, GeluTanh;

    /// `relu(left) * right`
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::reglu};
    ///
    /// let x: Tensor<Rank1<4>, f32, _> = Cpu::default().tensor([-1.0, 2.0, 7.0, 0.5]);
    /// assert_eq!(reglu::<2, _, _, _, _>(x).array(), [0.0, 1.0]);
    /// ```
    reglu, try_reglu, Relu;
}

macro_rules! gate_layers {
    ($($(#[$doc:meta])* $Name:ident, $Activation:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// `left` and `right` are the halves of the last axis: `[.., 2 H]` to `[.., H]`. Its input is the output of a
            /// [`Linear`](crate::nn::Linear) with `2 H` outputs; [`GatedFeedForward`](crate::nn::GatedFeedForward) has two with `H` outputs.
            ///
            /// Shazeer, "GLU variants improve transformer" (2020).
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $Name<const H: usize>;

            impl<const H: usize> ZeroSizedModule for $Name<H> {}
            impl<const H: usize> NonMutableModule for $Name<H> {}

            impl<const H: usize, S, E, D, T> Module<Tensor<S, E, D, T>> for $Name<H>
            where
                S: LastAxis<Last: ConstDim>,
                E: Element,
                D: Backend<E>,
                T: Tape<E, D>,
            {
                type Output = Tensor<S::With<Const<H>>, E, D, T>;
                type Error = D::Err;

                fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                    try_gate::<$Activation, H, S, E, D, T>(x).map_err(Error::into_device)
                }
            }
        )*
    };
}

gate_layers! {
    /// `silu(left) * right`, see [`ops::swiglu`](crate::ops::swiglu).
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::{SwiGlu, UnbiasedLinear}};
    ///
    /// type Model = (UnbiasedLinear<4, 16>, SwiGlu<8>, UnbiasedLinear<8, 4>);
    ///
    /// let dev = Cpu::default();
    /// let model = dev.build_module::<Model, f32>();
    /// let y: Tensor<Rank2<3, 4>, f32, _> = model.forward(dev.zeros::<Rank2<3, 4>>());
    /// ```
    SwiGlu, Silu;

    /// `gelu(left) * right`, see [`ops::geglu`](crate::ops::geglu).
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::GeGlu};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([200.0, 0.5]);
    /// assert_eq!(GeGlu::<1>.forward(x).array(), [100.0]);
    /// ```
    GeGlu, Gelu;

    /// `relu(left) * right`, see [`ops::reglu`](crate::ops::reglu).
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::ReGlu};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([200.0, 0.5]);
    /// assert_eq!(ReGlu::<1>.forward(x).array(), [100.0]);
    /// ```
    ReGlu, Relu;
}

/// The composed form, with dfdx's operations.
pub(crate) mod composed {
    use dfdx::{
        shapes::{Const, ConstDim, HasShape},
        tensor::{Tape, Tensor, WithEmptyTape},
        tensor_ops::{Device, TryMul},
    };

    use crate::{
        Element,
        composed::{is_empty, reshape, zeros_after},
        ops::{Activation, LastAxis, shape::rows},
    };

    /// [`gate`](super::gate)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn gate<A: Activation, const H: usize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S::With<Const<H>>, E, D, T>, D::Err>
    where
        S: LastAxis<Last: ConstDim>,
    {
        let shape = x.shape().with_last(Const::<H>);
        if is_empty(x.shape()) {
            return zeros_after(x, shape);
        }
        let x = rows(x)?;
        let left = x.with_empty_tape().try_slice((.., ..H))?;
        let right = x.try_slice((.., H..))?;
        // dfdx's two slices have different types.
        let sizes = (left.shape().0, H);
        let left = reshape(left, sizes)?;
        let right = reshape(right, sizes)?;
        reshape(A::compose(left)?.try_mul(right)?, shape)
    }
}
