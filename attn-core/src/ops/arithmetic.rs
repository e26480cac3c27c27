//! Sums, differences, products and multiples.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed, twins::twins};
use crate::{
    Backend, Element, Error,
    fused::{Operation, Target, layers, zeros},
    kernel::{
        arithmetic as kernel,
        elementwise::{self, NOTHING},
    },
};

twins! {
    /// `x + y`, the end of a residual connection. They may be one and the same tensor, where dfdx's own sum panics.
    ///
    /// He et al., "Deep residual learning for image recognition" (2015). PyTorch: `x + y`, for tensors of one shape.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::add};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([1.0, 2.0]);
    /// let y = add(x.leaky_trace(), x.leaky_trace());
    /// assert_eq!(y.array(), [2.0, 4.0]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [2.0, 2.0]);
    /// ```
    fn add, try_add, add_in<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `x - y`. They may be one and the same tensor.
    ///
    /// PyTorch: `x - y`, for tensors of one shape.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::sub};
    ///
    /// let dev = Cpu::default();
    /// let x: Tensor<Rank1<2>, f32, _> = dev.tensor([3.0, 2.0]);
    /// let y: Tensor<Rank1<2>, f32, _> = dev.tensor([1.0, 5.0]);
    /// let z = sub(x.leaky_trace(), y.leaky_trace());
    /// assert_eq!(z.array(), [2.0, -3.0]);
    /// assert_eq!(z.sum().backward().get(&y).array(), [-1.0, -1.0]);
    /// ```
    fn sub, try_sub, sub_in<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `x y`, element by element. They may be one and the same tensor.
    ///
    /// PyTorch: `x * y`, for tensors of one shape.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::mul};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([3.0, -1.0]);
    /// let y = mul(x.leaky_trace(), x.leaky_trace());
    /// assert_eq!(y.array(), [9.0, 1.0]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [6.0, -2.0]);
    /// ```
    fn mul, try_mul, mul_in<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `a x`, for a number `a`.
    ///
    /// PyTorch: `a * x`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::scale};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([3.0, -1.0]);
    /// let y = scale(x.leaky_trace(), 0.5);
    /// assert_eq!(y.array(), [1.5, -0.5]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [0.5, 0.5]);
    /// ```
    fn scale, try_scale, scale_in<S: Shape>(x, a: f64);

    /// `x + b`, for a number `b`.
    ///
    /// PyTorch: `x + b`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::shift};
    ///
    /// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([3.0, -1.0]);
    /// let y = shift(x.leaky_trace(), 0.5);
    /// assert_eq!(y.array(), [3.5, -0.5]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [1.0, 1.0]);
    /// ```
    fn shift, try_shift, shift_in<S: Shape>(x, b: f64);
}

/// [`try_add`] in its fused or its composed form.
#[track_caller]
pub(crate) fn add_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a sum");
    check_shape("add", x.shape())?;
    if fused {
        Ok(combine(elementwise::add, 1.0, x, y)?)
    } else {
        Ok(composed::add(x, y)?)
    }
}

/// [`try_sub`] in its fused or its composed form.
#[track_caller]
pub(crate) fn sub_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a difference");
    check_shape("sub", x.shape())?;
    if fused {
        Ok(combine(kernel::sub, -1.0, x, y)?)
    } else {
        Ok(composed::sub(x, y)?)
    }
}

/// `forward(x, y)`, whose derivatives are 1 and `sign`.
fn combine<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    forward: fn(&[E], &[E], &mut [E]),
    sign: f64,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let (device, shape) = (x.device().clone(), *x.shape());
    let mut operation = Operation::default();
    let (x, y) = (operation.read(x)?, operation.read(y)?);
    let mut z = zeros(x.values().len());
    forward(x.values(), y.values(), &mut z);
    let (d_x, d_y) = (x.into_slot(), y.into_slot());
    operation.finish(&device, z, shape, move |d_z, gradients| {
        Target::slot(d_x).add(1.0, d_z, gradients);
        Target::slot(d_y).add(sign, d_z, gradients)
    })
}

/// [`try_mul`] in its fused or its composed form.
#[track_caller]
pub(crate) fn mul_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a product");
    check_shape("mul", x.shape())?;
    if !fused {
        return Ok(composed::mul(x, y)?);
    }
    let (device, shape) = (x.device().clone(), *x.shape());
    let mut operation = Operation::default();
    let (x, y) = (operation.read(x)?, operation.read(y)?);
    let mut z = zeros(x.values().len());
    kernel::mul(x.values(), y.values(), &mut z);
    Ok(operation.finish(&device, z, shape, move |d_z, gradients| {
        layers::mul_backward(y.values(), d_z, &mut x.target(), gradients);
        layers::mul_backward(x.values(), d_z, &mut y.target(), gradients)
    })?)
}

/// [`try_scale`] in its fused or its composed form.
pub(crate) fn scale_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    a: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("scale", x.shape())?;
    if fused {
        Ok(scale_and_shift(x, a, NOTHING)?)
    } else {
        Ok(composed::scale(x, a)?)
    }
}

/// [`try_shift`] in its fused or its composed form.
pub(crate) fn shift_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    b: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("shift", x.shape())?;
    if fused {
        Ok(scale_and_shift(x, 1.0, b)?)
    } else {
        Ok(composed::shift(x, b)?)
    }
}

/// `a x + b`
fn scale_and_shift<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    a: f64,
    b: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let (device, shape) = (x.device().clone(), *x.shape());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(x.values().len());
    elementwise::affine(E::of(a), E::of(b), x.values(), &mut y);
    let d_x = x.into_slot();
    operation.finish(&device, y, shape, move |d_y, gradients| {
        Target::slot(d_x).add(a, d_y, gradients)
    })
}
