//! One vector of many: their mean.

use dfdx::{
    shapes::{Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{LastAxis, check_shape, composed};
use crate::{
    Backend, Element, Error,
    entry::check_batch,
    fused::{Ids, Operation, Target, layers, zeros},
    kernel::axis::Axis,
    unwrap,
};

/// The shape without its last axis but one: `[.., seq, M]` to `[.., M]`.
pub(super) type Pooled<S> = <<S as LastAxis>::Leading as LastAxis>::With<<S as LastAxis>::Last>;

/// The mean of the vectors of a sequence: `[.., seq, M]` to `[.., M]`. The mean of none is 0.
///
/// PyTorch: `x.mean(-2)`.
///
/// ```
/// use attn_core::ops::mean_pool;
/// use dfdx::prelude::*;
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]);
/// let y: Tensor<Rank1<3>, f32, _, _> = mean_pool(x.leaky_trace());
/// assert_eq!(y.array(), [2.0, 3.0, 4.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[0.5; 3]; 2]);
/// ```
///
/// # Panics
/// Where [`try_mean_pool`] has an error.
#[track_caller]
pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<Pooled<S>, E, D, T> {
    unwrap(try_mean_pool(x))
}

/// The fallible twin of [`mean_pool`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    mean_pool_in(D::FUSED, x)
}

/// [`try_mean_pool`] in its fused or its composed form.
pub(crate) fn mean_pool_in<S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>>
where
    S: LastAxis<Leading: LastAxis>,
{
    check_shape("mean_pool", x.shape())?;
    let axis = sequence(x.shape());
    pool(fused, x, vec![axis.len; axis.outer])
}

/// The mean of the first `lens[b]` vectors of sequence `b`, what is behind them being padding that is not read:
/// `x [batch, seq, M]` and `lens [batch]` to `[batch, M]`. The mean of none is 0.
///
/// PyTorch: `(x * real).sum(1) / lens`, where `real` is 1 before the lengths and 0 behind.
///
/// ```
/// use attn_core::ops::{mean_pool_padded, try_mean_pool_padded};
/// use dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<2, 2, 1>, f32, _> = dev.tensor([[[1.0], [3.0]], [[5.0], [f32::NAN]]]);
/// let y: Tensor<Rank2<2, 1>, f32, _> = mean_pool_padded(x.clone(), &dev.tensor([2, 1]));
/// assert_eq!(y.array(), [[2.0], [5.0]]);
///
/// let error = try_mean_pool_padded(x, &dev.tensor([2, 3])).unwrap_err();
/// assert_eq!(error.to_string(), "mean_pool: the valid length at [1] is 3, but there are 2 keys");
/// ```
///
/// # Panics
/// Where [`try_mean_pool_padded`] has an error.
#[track_caller]
pub fn mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    lens: &Tensor<(B,), usize, D>,
) -> Tensor<(B, L), E, D, T> {
    unwrap(try_mean_pool_padded(x, lens))
}

/// The fallible twin of [`mean_pool_padded`].
///
/// # Errors
/// [`Error::LengthBeyondKeys`] if a length is greater than `seq`; [`Error::BatchMismatch`] if there is not one length per
/// sequence; [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    lens: &Tensor<(B,), usize, D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>> {
    mean_pool_padded_in(D::FUSED, x, lens)
}

/// [`try_mean_pool_padded`] in its fused or its composed form.
pub(crate) fn mean_pool_padded_in<B: Dim, S: Dim, L: Dim, E, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<(B, S, L), E, D, T>,
    lens: &Tensor<(B,), usize, D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>>
where
    E: Element,
{
    check_shape("mean_pool", x.shape())?;
    let axis = sequence(x.shape());
    check_batch(
        "mean_pool",
        "valid lengths",
        axis.outer,
        lens.shape().0.size(),
    )?;
    let lens = Ids::read(lens);
    lens.check_lengths("mean_pool", axis.len)?;
    pool(fused, x, lens.values)
}

/// The last axis but one.
fn sequence<S: LastAxis<Leading: LastAxis>>(shape: &S) -> Axis {
    let leading = shape.leading();
    Axis {
        outer: leading.leading().num_elements(),
        len: leading.last().size(),
        inner: shape.last().size(),
    }
}

/// The means of the first `counts[o]` vectors of the sequences `o`.
fn pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    counts: Vec<usize>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    if !fused {
        return Ok(composed::mean_pool(x, &counts)?);
    }
    let (device, axis) = (x.device().clone(), sequence(x.shape()));
    let shape = x.shape().leading().with_last(x.shape().last());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(axis.outer * axis.inner);
    layers::mean_pool(x.values(), axis, Some(&counts), &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let d_x = &mut Target::slot(d_x);
        layers::mean_pool_backward(axis, Some(&counts), d_y, d_x, gradients)
    })?)
}
