//! Layers without parameters: nonlinearities, and gates.

use dfdx::{
    nn::{Module, NonMutableModule, ZeroSizedModule},
    shapes::{Const, ConstDim, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    ops::{
        Gelu, GeluTanh, LastAxis, Relu, ReluSquared, Sigmoid, Silu, Tanh, try_activate, try_gate,
    },
};

macro_rules! activation_layers {
    ($($Name:ident)*) => {
        $(
            impl ZeroSizedModule for $Name {}
            impl NonMutableModule for $Name {}

            impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> Module<Tensor<S, E, D, T>>
                for $Name
            {
                type Output = Tensor<S, E, D, T>;
                type Error = D::Err;

                fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                    try_activate::<Self, S, E, D, T>(x).map_err(Error::into_device)
                }
            }
        )*
    };
}

activation_layers!(Gelu GeluTanh Relu ReluSquared Sigmoid Silu Tanh);

macro_rules! gate_layers {
    ($($(#[$doc:meta])* $Name:ident, $Activation:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// `left` and `right` are the halves of the last axis: `[.., 2 H]` to `[.., H]`. It stands behind a
            /// [`Linear`](super::Linear) of `2 H` outputs; [`GatedFeedForward`](super::GatedFeedForward) has two of `H`.
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
