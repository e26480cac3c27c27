//! Normalisation of the last axis.

use dfdx::{
    shapes::{HasShape, Rank1, Shape},
    tensor::{Tape, Tensor},
};

use super::{EndsIn, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operation, Output, layers::Norm},
    kernel::norm::Kind,
    unwrap,
};

/// `y = (x - mean(x)) / sqrt(var(x) + epsilon) * gain + bias` over the last axis, for `x [.., M]`, `gain [M]` and
/// `bias [M]`. The variance is that of the population, without Bessel's correction.
///
/// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch:
/// `torch.nn.functional.layer_norm(x, (M,), gain, bias, epsilon)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::layer_norm};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 4>, f64, _> = dev.tensor([[1.0, 1.0, 3.0, 3.0]]);
/// let y = layer_norm(x, &dev.ones(), &dev.zeros(), 1e-12);
/// assert!(y.array()[0].map(f64::round) == [-1.0, -1.0, 1.0, 1.0]);
/// ```
///
/// # Panics
/// Where [`try_layer_norm`] has an error, and if `epsilon` is not greater than 0.
#[track_caller]
pub fn layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_layer_norm(x, gain, bias, epsilon))
}

/// The fallible twin of [`layer_norm`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `epsilon` is not greater than 0: a constant row would have no derivative.
#[track_caller]
pub fn try_layer_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    layer_norm_in(D::FUSED, x, gain, bias, epsilon)
}

/// [`try_layer_norm`] in its fused or its composed form.
#[track_caller]
pub(crate) fn layer_norm_in<
    S: EndsIn<M>,
    const M: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check::<E, _>("layer_norm", x.shape(), epsilon)?;
    if fused {
        Ok(norm(Kind::Layer, x, gain, Some(bias), epsilon)?)
    } else {
        Ok(composed::layer_norm(x, gain, bias, epsilon)?)
    }
}

/// `y = x / sqrt(mean(x²) + epsilon) * gain` over the last axis, for `x [.., M]` and `gain [M]`.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019). PyTorch:
/// `torch.nn.functional.rms_norm(x, (M,), gain, epsilon)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::rms_norm};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f64, _> = dev.tensor([1.0, -7.0]); // mean(x²) = 25
/// let y = rms_norm(x, &dev.tensor([5.0, 10.0]), 1e-12);
/// assert!(y.array().map(f64::round) == [1.0, -14.0]);
/// ```
///
/// # Panics
/// Where [`try_rms_norm`] has an error, and if `epsilon` is not greater than 0.
#[track_caller]
pub fn rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_rms_norm(x, gain, epsilon))
}

/// The fallible twin of [`rms_norm`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `epsilon` is not greater than 0: a row of zeros would have no derivative.
#[track_caller]
pub fn try_rms_norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    rms_norm_in(D::FUSED, x, gain, epsilon)
}

/// [`try_rms_norm`] in its fused or its composed form.
#[track_caller]
pub(crate) fn rms_norm_in<
    S: EndsIn<M>,
    const M: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check::<E, _>("rms_norm", x.shape(), epsilon)?;
    if fused {
        Ok(norm(Kind::Rms, x, gain, None, epsilon)?)
    } else {
        Ok(composed::rms_norm(x, gain, epsilon)?)
    }
}

#[track_caller]
fn check<E: Element, Dev>(
    operation: &'static str,
    shape: &impl Shape,
    epsilon: f64,
) -> Result<(), Error<Dev>> {
    let positive = E::of(epsilon) > E::zero();
    assert!(positive, "{operation}: epsilon is {epsilon}");
    check_shape(operation, shape)
}

fn norm<S: EndsIn<M>, const M: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    kind: Kind,
    x: Tensor<S, E, D, T>,
    gain: &Tensor<Rank1<M>, E, D>,
    bias: Option<&Tensor<Rank1<M>, E, D>>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let (device, shape) = (x.device().clone(), *x.shape());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let norm = Norm {
        kind,
        epsilon,
        gain: operation.parameter(gain)?,
        bias: bias.map(|bias| operation.parameter(bias)).transpose()?,
    };
    let mut y = Output::zeros(shape.leading().num_elements(), M);
    let statistics = norm.forward(x.matrix(), y.all_mut());
    operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
        norm.backward(x.matrix(), statistics, d_y, &mut x.target(), gradients)
    })
}
