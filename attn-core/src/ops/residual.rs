//! The sum of two tensors.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed};
use crate::{
    Backend, Element, Error,
    entry::contiguous,
    fused::{Operation, Place, zeros},
    kernel::elementwise,
    unwrap,
};

/// `x + y`, the end of a residual connection. They may be one and the same tensor, where dfdx's own sum panics.
///
/// He et al., "Deep residual learning for image recognition" (2015). PyTorch: `x + y`, for tensors of one shape.
///
/// ```
/// use attn_core::ops::add;
/// use dfdx::prelude::*;
///
/// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([1.0, 2.0]);
/// let y = add(x.leaky_trace(), x.leaky_trace());
/// assert_eq!(y.array(), [2.0, 4.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [2.0, 2.0]);
/// ```
///
/// # Panics
/// Where [`try_add`] has an error, and if sizes that only the running program knows differ.
#[track_caller]
pub fn add<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Tensor<S, E, D, T> {
    unwrap(try_add(x, y))
}

/// The fallible twin of [`add`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If sizes that only the running program knows differ.
#[track_caller]
pub fn try_add<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a sum");
    check_shape("add", x.shape())?;
    if !D::FUSED {
        return Ok(composed::add(x, y)?);
    }
    let (device, shape) = (x.device().clone(), *x.shape());
    let (x, y) = (contiguous(x)?, contiguous(y)?);
    let (d_x, d_y) = (Place::of(&x), Place::of(&y));
    let mut operation = Operation::default();
    let (x, y) = (operation.read(x)?, operation.read(y)?);
    let mut sum = zeros(x.values().len());
    elementwise::add(x.values(), y.values(), &mut sum);
    Ok(
        operation.finish(&device, sum, shape, move |d_sum, gradients| {
            elementwise::add_scaled(E::one(), d_sum, d_x.find(gradients)?);
            elementwise::add_scaled(E::one(), d_sum, d_y.find(gradients)?);
            Ok(())
        })?,
    )
}
