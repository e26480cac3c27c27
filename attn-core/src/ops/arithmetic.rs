//! Elementwise arithmetic.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::loops::{
        self, Loop,
        known::{Add, Mul, MulBackward, Scale, Shift, Sub},
        read,
    },
    model::Pass,
    ops::{check_shape, elementwise::elementwise_backward, twins::twins},
};

twins! {
    /// `x + y`, as in a residual connection. Both may be the same tensor, for which dfdx's sum panics.
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
    fn add, try_add, add_with_form<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `x - y`. Both may be the same tensor.
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
    fn sub, try_sub, sub_with_form<S: Shape>(x, y: Tensor<S, E, D, T>);

    /// `x y`, elementwise. Both may be the same tensor.
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
    fn mul, try_mul, mul_with_form<S: Shape>(x, y: Tensor<S, E, D, T>);

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
    fn scale, try_scale, scale_with_form<S: Shape>(x, a: f64);

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
    fn shift, try_shift, shift_with_form<S: Shape>(x, b: f64);
}

/// [`try_add`] in the fused or the composed form.
#[track_caller]
pub(crate) fn add_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a sum");
    check_shape("add", x.shape())?;
    if fused {
        Ok(combine(&Add, 1.0, x, y)?)
    } else {
        Ok(composed::add(x, y)?)
    }
}

/// [`try_sub`] in the fused or the composed form.
#[track_caller]
pub(crate) fn sub_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a difference");
    check_shape("sub", x.shape())?;
    if fused {
        Ok(combine(&Sub, -1.0, x, y)?)
    } else {
        Ok(composed::sub(x, y)?)
    }
}

/// An elementwise loop with the derivatives 1 and `sign`.
fn combine<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    body: &impl Loop<2, 1>,
    sign: f64,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = operation.read(y)?;
    let mut z = zeros(x.values().len());
    let operands = [read(x.values()), read(y.values())];
    loops::compute(body, operands, [z.as_mut_slice().into()]);
    let d_x = x.into_slot();
    let d_y = y.into_slot();
    operation.finish(&device, z, shape, move |d_z, gradients| {
        GradTarget::slot(d_x).add(1.0, d_z, gradients);
        GradTarget::slot(d_y).add(sign, d_z, gradients)
    })
}

/// [`try_mul`] in the fused or the composed form.
#[track_caller]
pub(crate) fn mul_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert_eq!(x.shape(), y.shape(), "the shapes of a product");
    check_shape("mul", x.shape())?;
    if !fused {
        return Ok(composed::mul(x, y)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = operation.read(y)?;
    let mut z = zeros(x.values().len());
    let operands = [read(x.values()), read(y.values())];
    loops::compute(&Mul, operands, [z.as_mut_slice().into()]);
    Ok(operation.finish(&device, z, shape, move |d_z, gradients| {
        let operands = [read(x.values()), read(y.values()), read(d_z)];
        let targets = [&mut x.target(), &mut y.target()];
        elementwise_backward(&MulBackward, operands, targets, gradients)
    })?)
}

/// [`try_scale`] in the fused or the composed form.
pub(crate) fn scale_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    a: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("scale", x.shape())?;
    if fused {
        Ok(of_one(&Scale { by: a }, a, x)?)
    } else {
        Ok(composed::scale(x, a)?)
    }
}

/// [`try_shift`] in the fused or the composed form.
pub(crate) fn shift_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    b: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("shift", x.shape())?;
    if fused {
        Ok(of_one(&Shift { by: b }, 1.0, x)?)
    } else {
        Ok(composed::shift(x, b)?)
    }
}

/// An elementwise loop with the derivative `slope`.
fn of_one<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    body: &impl Loop<1, 1>,
    slope: f64,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(x.values().len());
    loops::compute(body, [read(x.values())], [y.as_mut_slice().into()]);
    let d_x = x.into_slot();
    operation.finish(&device, y, shape, move |d_y, gradients| {
        GradTarget::slot(d_x).add(slope, d_y, gradients)
    })
}

/// Operations of two tensors of one shape, which may be the same, and of a tensor and a number.
macro_rules! arithmetic {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $try_name:ident, $name_with_form:ident(x, $y:ident: $Y:ty) as $operand:expr;
    )*) => {
        impl<T> Pass<'_, T> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("The errors of [`", stringify!($try_name), "`].")]
                ///
                /// # Panics
                #[doc = concat!("The panics of [`", stringify!($try_name), "`].")]
                #[track_caller]
                pub fn $name<S: Shape, E: Element, D: Backend<E>>(
                    &mut self,
                    x: &Tensor<S, E, D>,
                    $y: $Y,
                ) -> Result<Tensor<S, E, D>, Error<D::Err>>
                where
                    T: Tape<E, D>,
                {
                    self.run(x, |fused, x| $name_with_form(fused, x, $operand))
                }
            )*
        }
    };
}

arithmetic! {
    /// `x + y`, for tensors of one shape: [`add`].
    fn add, try_add, add_with_form(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `x - y`, for tensors of one shape: [`sub`].
    fn sub, try_sub, sub_with_form(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `x y`, for tensors of one shape: [`mul`].
    fn mul, try_mul, mul_with_form(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `a x`, for a number: [`scale`].
    fn scale, try_scale, scale_with_form(x, a: f64) as a;
    /// `x + b`, for a number: [`shift`].
    fn shift, try_shift, shift_with_form(x, b: f64) as b;
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::Shape,
        tensor::{Tape, Tensor},
        tensor_ops::{Device, TryAdd, TryMul, TrySub},
    };

    use crate::Element;

    /// [`add`](super::add)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn add<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        // This copy has another id: dfdx's sum of a tensor and itself has no derivative.
        x.try_add(-E::zero())?.try_add(y)
    }

    /// [`sub`](super::sub)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn sub<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        // See `add`.
        x.try_add(-E::zero())?.try_sub(y)
    }

    /// [`mul`](super::mul)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn mul<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        // See `add`.
        x.try_add(-E::zero())?.try_mul(y)
    }

    /// [`scale`](super::scale)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn scale<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        a: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        x.try_mul(E::of(a))
    }

    /// [`shift`](super::shift)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn shift<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        b: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        x.try_add(E::of(b))
    }
}
