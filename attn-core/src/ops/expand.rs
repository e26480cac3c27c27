//! Axes of size 1, made larger.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed};
use crate::{
    Backend, Element, Error,
    entry::contiguous,
    fused::{Operation, Place, accumulate, zeros},
    kernel::{
        Buffer,
        axis::{self, Axis},
    },
    unwrap,
};

/// Repeats the numbers along axes of size 1, to the shape `to` of as many axes. The gradient is summed over them.
///
/// PyTorch: `x.expand(to)`; the numbers are copied.
///
/// ```
/// use attn_core::ops::expand;
/// use dfdx::prelude::*;
///
/// let x: Tensor<Rank2<1, 2>, f32, _> = Cpu::default().tensor([[1.0, 2.0]]);
/// let y: Tensor<(usize, Const<2>), f32, _, _> = expand(x.leaky_trace(), (3, Const));
/// assert_eq!(y.as_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[3.0, 3.0]]);
/// ```
///
/// # Panics
/// Where [`try_expand`] has an error, and where that panics.
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
    let steps = steps(x.shape(), &to);
    if !fused {
        return Ok(composed::expand(x, to)?);
    }
    let device = x.device().clone();
    let x = contiguous(x)?;
    let d_x = Place::of(&x);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = steps.iter().fold(x.values().to_vec(), |x, &step| {
        let mut y = zeros(step.elements());
        axis::repeat(&x, step, &mut y);
        y
    });
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        let mut sums: Option<Buffer<E>> = None;
        for &step in steps.iter().rev() {
            let mut fewer = Buffer::stale(step.outer * step.inner);
            axis::sum(sums.as_deref().unwrap_or(d_y), step, &mut fewer);
            sums = Some(fewer);
        }
        accumulate(d_x.find(gradients)?, sums.as_deref().unwrap_or(d_y));
        Ok(())
    })?)
}

/// The axes that become larger, the last one first.
#[track_caller]
fn steps<S: Shape, S2: Shape>(from: &S, to: &S2) -> Vec<Axis> {
    let from: Vec<usize> = from.concrete().into_iter().collect();
    let to: Vec<usize> = to.concrete().into_iter().collect();
    let grows = |&axis: &usize| from[axis] != to[axis];
    let axes = (0..from.len()).rev().filter(grows);
    axes.map(|axis| {
        assert_eq!(from[axis], 1, "axis {axis} of {from:?} in {to:?}");
        Axis {
            outer: from[..axis].iter().product(),
            len: to[axis],
            inner: to[axis + 1..].iter().product(),
        }
    })
    .collect()
}
