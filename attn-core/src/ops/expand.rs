//! Axes of size 1, made larger.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operation, Target, layers, zeros},
    unwrap,
};

/// Repeats the numbers along axes of size 1, to the shape `to` of as many axes. The gradient is summed over them.
///
/// PyTorch: `x.expand(to)`; the numbers are copied.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::expand};
///
/// let x: Tensor<Rank2<1, 2>, f32, _> = Cpu::default().tensor([[1.0, 2.0]]);
/// let y: Tensor<(usize, Const<2>), f32, _, _> = expand(x.leaky_trace(), (3, Const));
/// assert_eq!(y.as_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[3.0, 3.0]]);
/// ```
///
/// # Panics
/// Where [`try_expand`] has an error, and where that panics.
#[doc(alias = "broadcast")]
#[track_caller]
pub fn expand<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_expand(x, to))
}

/// The fallible twin of [`expand`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If an axis changes whose size is not 1.
#[track_caller]
pub fn try_expand<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    expand_in(D::FUSED, x, to)
}

/// [`try_expand`] in its fused or its composed form.
#[track_caller]
pub(crate) fn expand_in<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    check_shape("expand", x.shape())?;
    check_shape("expand", &to)?;
    let steps = layers::growing(&dims(x.shape()), &dims(&to));
    if !fused {
        return Ok(composed::expand(x, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    layers::expand(x.values(), &steps, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        layers::expand_backward(&steps, d_y, &mut Target::slot(d_x), gradients)
    })?)
}

fn dims(shape: &impl Shape) -> Vec<usize> {
    shape.concrete().into_iter().collect()
}
