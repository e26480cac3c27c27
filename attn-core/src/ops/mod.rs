//! Operations on tensors that are each one operation of the tape.
//!
//! dfdx builds a layer norm out of some ten operations, each of which reads and writes memory once more and leaves a
//! step on the tape. Here it is one, on slices, with its derivative written out: see [`kernel`](crate::kernel).
//!
//! | | |
//! | --- | --- |
//! | [`linear`] | `x Wᵀ + b` |
//! | [`feed_forward`], [`gated_feed_forward`] | two such maps, and a nonlinearity between them |
//! | [`layer_norm`], [`rms_norm`] | normalisation of the last axis |
//! | [`gelu`], [`gelu_tanh`], [`relu`], [`relu_squared`], [`silu`], [`sigmoid`], [`tanh`] | functions of the elements |
//! | [`swiglu`], [`geglu`], [`geglu_tanh`], [`reglu`] | one half of the last axis gates the other |
//! | [`embedding`] | rows of a table |
//! | [`dropout`] | a share of the elements becomes 0 |
//! | [`add`] | of two tensors, which may be the same |
//! | [`cross_entropy`] | the loss of a classifier |
//!
//! Each has a `try_` twin, which returns what the other panics with. The last axis is the one that an operation is
//! about; before it there may be up to three more, of any size, 0 included. Inputs may be views, broadcast or permuted,
//! and the same tensor may be given twice.
//!
//! The layers in [`nn`](crate::nn) are these with parameters. On a device that is not [`FUSED`](crate::Backend::FUSED)
//! the functions of [`composed`] stand in, which mean the same.

mod activation;
pub mod composed;
mod cross_entropy;
mod dropout;
mod embedding;
mod feed_forward;
mod gate;
mod linear;
mod norm;
mod residual;
mod shape;

pub use crate::kernel::{
    activation::Activation as ActivationKernel, cross_entropy::Options as CrossEntropyOptions,
};
pub use crate::simd::Vector;
pub use activation::{
    Activation, Gelu, GeluTanh, Relu, ReluSquared, Sigmoid, Silu, Tanh, activate, gelu, gelu_tanh,
    relu, relu_squared, sigmoid, silu, tanh, try_activate, try_gelu, try_gelu_tanh, try_relu,
    try_relu_squared, try_sigmoid, try_silu, try_tanh,
};
pub use cross_entropy::{cross_entropy, try_cross_entropy};
pub use dropout::{dropout, try_dropout};
pub use embedding::{embedding, try_embedding};
pub use feed_forward::{
    Affine, feed_forward, gated_feed_forward, try_feed_forward, try_gated_feed_forward,
};
pub use gate::{
    gate, geglu, geglu_tanh, reglu, swiglu, try_gate, try_geglu, try_geglu_tanh, try_reglu,
    try_swiglu,
};
pub use linear::{linear, try_linear};
pub use norm::{layer_norm, rms_norm, try_layer_norm, try_rms_norm};
pub use residual::{add, try_add};
pub use shape::{Append, EndsIn, LastAxis};

use dfdx::shapes::Shape;

use crate::{Error, entry::check_sizes};

/// Checks that a tensor of this shape can exist: a broadcast one may have more elements than memory has.
fn check_shape<Dev>(operation: &'static str, shape: &impl Shape) -> Result<(), Error<Dev>> {
    const AXES: [&str; 6] = ["axis 0", "axis 1", "axis 2", "axis 3", "axis 4", "axis 5"];
    let sizes: Vec<_> = AXES.into_iter().zip(shape.concrete()).collect();
    check_sizes(operation, &sizes)
}
