//! The operations of [`ops`](super) out of dfdx's, to be read and compared with.
//!
//! They stand in on devices that are not [`FUSED`](crate::Backend::FUSED), and the tests hold the others against them. The
//! indices they are given are checked already.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, TryGt},
};

use super::LastAxis;
use crate::{Element, composed::reshape};

pub use super::{
    arithmetic::composed::{add, mul, scale, shift, sub},
    concat::composed::concat,
    cross_entropy::composed::cross_entropy,
    dropout::composed::dropout,
    embedding::composed::embedding,
    expand::composed::expand,
    feed_forward::composed::{feed_forward, gated_feed_forward},
    gate::composed::gate,
    l2_norm::composed::l2_norm,
    linear::composed::linear,
    max_pool::composed::max_pool,
    mean_pool::composed::mean_pool,
    norm::composed::{layer_norm, rms_norm},
    sinusoidal_position::composed::sinusoidal_position,
    softmax::composed::softmax,
};

/// A tensor as rows of its last axis.
pub(super) type Rows<L, E, D, T> = Tensor<(usize, L), E, D, T>;

pub(super) fn rows<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Rows<S::Last, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, (shape.leading().num_elements(), shape.last()))
}

/// A tensor of conditions. dfdx's devices make tensors of `bool` only by comparing numbers.
pub(super) fn conditions<S: Shape, E: Element, D: Device<E>>(
    device: &D,
    conditions: impl Iterator<Item = bool>,
    shape: S,
) -> Result<Tensor<S, bool, D>, D::Err> {
    let numbers = conditions.map(|yes| if yes { E::one() } else { E::zero() });
    let numbers: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(device, numbers.collect(), shape)?;
    numbers.try_gt(E::zero())
}
