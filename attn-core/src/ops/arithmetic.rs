//! Sums, differences, products and multiples.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed, twins::twins};
use crate::{
    Backend, Element, Error,
    entry::contiguous,
    fused::{Operation, Place, zeros},
    kernel::{arithmetic as kernel, elementwise},
};

twins! {
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
    fn add, try_add, add_in<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `x - y`. They may be one and the same tensor.
    ///
    /// PyTorch: `x - y`, for tensors of one shape.
    ///
    /// ```
    /// use attn_core::ops::sub;
    /// use dfdx::prelude::*;
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
    /// use attn_core::ops::mul;
    /// use dfdx::prelude::*;
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
    /// use attn_core::ops::scale;
    /// use dfdx::prelude::*;
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
    /// use attn_core::ops::shift;
    /// use dfdx::prelude::*;
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
    let (x, y) = (contiguous(x)?, contiguous(y)?);
    let (d_x, d_y) = (Place::of(&x), Place::of(&y));
    let mut operation = Operation::default();
    let (x, y) = (operation.read(x)?, operation.read(y)?);
    let mut z = zeros(x.values().len());
    forward(x.values(), y.values(), &mut z);
    operation.finish(&device, z, shape, move |d_z, gradients| {
        elementwise::add_scaled(E::one(), d_z, d_x.find(gradients)?);
        elementwise::add_scaled(E::of(sign), d_z, d_y.find(gradients)?);
        Ok(())
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
        kernel::add_product(d_z, y.values(), x.gradient(gradients)?);
        kernel::add_product(d_z, x.values(), y.gradient(gradients)?);
        Ok(())
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
        // -0.0 is what leaves every number, and the sign of zero, as it is.
        Ok(scale_and_shift(x, a, -0.0)?)
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
    let (device, shape, a) = (x.device().clone(), *x.shape(), E::of(a));
    let x = contiguous(x)?;
    let d_x = Place::of(&x);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = vec![E::of(b); x.values().len()];
    elementwise::add_scaled(a, x.values(), &mut y);
    operation.finish(&device, y, shape, move |d_y, gradients| {
        elementwise::add_scaled(a, d_y, d_x.find(gradients)?);
        Ok(())
    })
}
