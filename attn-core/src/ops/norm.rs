//! Normalisation of the last axis.

use dfdx::{
    shapes::{HasShape, Rank1, Shape},
    tensor::{Tape, Tensor},
};

use super::{EndsIn, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operand, Operation, accumulate, zeros},
    kernel::{
        Buffer, Matrix, MatrixMut,
        norm::{Gradients, Kind, Norm, STATISTICS},
    },
    simd::Into,
    unwrap,
};

/// `y = (x - mean(x)) / sqrt(var(x) + epsilon) * gain + bias` over the last axis, for `x [.., M]`, `gain [M]` and
/// `bias [M]`. The variance is that of the population, without Bessel's correction.
///
/// Ba, Kiros and Hinton, "Layer normalization" (2016). PyTorch:
/// `torch.nn.functional.layer_norm(x, (M,), gain, bias, epsilon)`.
///
/// ```
/// use attn_core::ops::layer_norm;
/// use dfdx::prelude::*;
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
/// use attn_core::ops::rms_norm;
/// use dfdx::prelude::*;
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
    let layer = Layer {
        kind,
        epsilon,
        rows: shape.leading().num_elements(),
        x: operation.read(x)?,
        gain: operation.parameter(gain)?,
        bias: bias.map(|bias| operation.parameter(bias)).transpose()?,
    };
    let (y, statistics) = layer.forward();
    operation.finish(&device, y, shape, move |d_y, gradients| {
        layer.backward(&statistics, d_y, gradients)
    })
}

/// What a norm reads.
struct Layer<E: Element, D: Backend<E>> {
    kind: Kind,
    epsilon: f64,
    rows: usize,
    x: Operand<E, D>,
    gain: Operand<E, D>,
    bias: Option<Operand<E, D>>,
}

impl<E: Element, D: Backend<E>> Layer<E, D> {
    fn norm(&self) -> Norm<'_, E> {
        Norm {
            kind: self.kind,
            gain: Some(self.gain.values()),
            bias: self.bias.as_ref().map(Operand::values),
            epsilon: E::of(self.epsilon),
        }
    }

    fn width(&self) -> usize {
        self.gain.values().len()
    }

    /// The result, and what the derivative needs of it.
    fn forward(&self) -> (Vec<E>, Buffer<E>) {
        let (rows, width) = (self.rows, self.width());
        let mut y = zeros(rows * width);
        let mut statistics = Buffer::stale(STATISTICS * rows);
        let to = MatrixMut::new(&mut y, rows, width);
        let x = Matrix::new(self.x.values(), rows, width);
        self.norm().forward(x, to, &mut statistics);
        (y, statistics)
    }

    fn backward(
        &self,
        statistics: &[E],
        d_y: &[E],
        gradients: &mut dfdx::tensor::Gradients<E, D>,
    ) -> Result<(), D::Err> {
        let (rows, width) = (self.rows, self.width());
        // One gradient at a time can be written in place.
        let mut d_gain = Buffer::zeros(width);
        let mut d_bias = Buffer::zeros(width);
        let to = Gradients {
            x: MatrixMut::new(self.x.gradient(gradients)?, rows, width),
            into: Into::Add,
            gain: Some(&mut d_gain),
            bias: self.bias.is_some().then_some(&mut d_bias),
        };
        let x = Matrix::new(self.x.values(), rows, width);
        let d_y = Matrix::new(d_y, rows, width);
        self.norm().backward(x, statistics, d_y, to);
        accumulate(self.gain.gradient(gradients)?, &d_gain);
        if let Some(bias) = &self.bias {
            accumulate(bias.gradient(gradients)?, &d_bias);
        }
        Ok(())
    }
}
