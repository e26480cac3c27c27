//! Normalisation to length 1.

use dfdx::{
    shapes::{Axis, Dim, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, zeros},
    kernel::{Matrix, MatrixMut},
    model::Pass,
    ops::{
        LastAxis, check_shape,
        shape::axis_of,
        twins::{twins, twins_along},
    },
};

twins! {
    /// `x / max(|x|, epsilon)` over the last axis, where `|x|` is the Euclidean length of a vector.
    ///
    /// A vector of zeros does not change; its gradient is `dy / epsilon`. `epsilon` must be greater than 0.
    ///
    /// PyTorch: `torch.nn.functional.normalize(x, dim=-1, eps=epsilon)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::l2_norm};
    ///
    /// let x: Tensor<Rank2<2, 2>, f64, _> = Cpu::default().tensor([[3.0, -4.0], [0.0, 0.0]]);
    /// let y = l2_norm(x, 1e-12).array();
    /// assert!((y[0][0] - 0.6).abs() < 1e-15 && (y[0][1] + 0.8).abs() < 1e-15);
    /// assert_eq!(y[1], [0.0, 0.0]);
    /// ```
    #[doc(alias = "normalize")]
    fn l2_norm, try_l2_norm, l2_norm_with_form<S: LastAxis>(x, epsilon: f64);
}

/// [`try_l2_norm`] in the fused or the composed form.
#[track_caller]
pub(crate) fn l2_norm_with_form<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    let is_positive = E::of(epsilon) > E::zero();
    assert!(is_positive, "l2_norm: epsilon is {epsilon}");
    check_shape("l2_norm", x.shape())?;
    if !fused {
        return Ok(composed::l2_norm(x, epsilon)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let rows = shape.leading().num_elements();
    let width = shape.last().size();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(rows * width);
    let matrix = Matrix::new(x.values(), rows, width);
    slices::l2_norm(matrix, epsilon, MatrixMut::new(&mut y, rows, width));
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let matrix = Matrix::new(x.values(), rows, width);
        let d_y = Matrix::new(d_y, rows, width);
        slices::l2_norm_backward(matrix, epsilon, d_y, &mut x.target(), gradients)
    })?)
}

twins_along! {
    /// `x / max(|x|, epsilon)` along one axis, where `|x|` is the Euclidean length of the numbers there. [`l2_norm`] is that of the last axis.
    ///
    /// PyTorch: `torch.nn.functional.normalize(x, dim=0, eps=epsilon)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::l2_norm_along};
    ///
    /// let x: Tensor<Rank2<2, 2>, f64, _> = Cpu::default().tensor([[3.0, 0.0], [-4.0, 0.0]]);
    /// let y = l2_norm_along(x, Axis::<0>, 1e-12).array();
    /// assert!((y[0][0] - 0.6).abs() < 1e-15 && (y[1][0] + 0.8).abs() < 1e-15);
    /// assert_eq!([y[0][1], y[1][1]], [0.0, 0.0]);
    /// ```
    #[doc(alias = "normalize")]
    fn l2_norm_along, try_l2_norm_along, l2_norm_along_with_form(x, axis, epsilon: f64), panics "If `epsilon` is not greater than 0.";
}

/// [`try_l2_norm_along`] in the fused or the composed form.
#[track_caller]
pub(crate) fn l2_norm_along_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    epsilon: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    let is_positive = E::of(epsilon) > E::zero();
    assert!(is_positive, "l2_norm: epsilon is {epsilon}");
    check_shape("l2_norm", x.shape())?;
    if !fused {
        return Ok(composed::l2_norm_along(x, axis, epsilon)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let axis = axis_of::<I>(&shape);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(axis.elements());
    slices::l2_norm_along(x.values(), axis, epsilon, &mut y);
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let d_x = &mut x.target();
        slices::l2_norm_along_backward(x.values(), axis, epsilon, d_y, d_x, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Normalises the numbers along one axis to length 1: [`l2_norm_along`].
    ///
    /// # Errors
    /// The errors of [`try_l2_norm_along`].
    ///
    /// # Panics
    /// The panics of [`try_l2_norm_along`].
    #[track_caller]
    pub fn l2_norm_along<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: Axis<I>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            l2_norm_along_with_form(fused, x, axis, epsilon)
        })
    }

    /// Normalises vectors to length 1, `[.., M]`: [`l2_norm`].
    ///
    /// # Errors
    /// The errors of [`try_l2_norm`].
    ///
    /// # Panics
    /// The panics of [`try_l2_norm`].
    #[track_caller]
    pub fn l2_norm<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| l2_norm_with_form(fused, x, epsilon))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            Matrix, MatrixMut,
            axis::Axis,
            l2_norm as kernel,
            rows::{Sink, Source},
        },
    };

    /// Divides the numbers along an axis by their length, or by `epsilon` if that is greater.
    pub fn l2_norm_along<E: Element>(x: &[E], axis: Axis, epsilon: f64, y: &mut [E]) {
        kernel::forward_along(x, axis, E::of(epsilon), y);
    }

    /// The derivative of [`l2_norm_along`].
    pub fn l2_norm_along_backward<E: Element>(
        x: &[E],
        axis: Axis,
        epsilon: f64,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        kernel::backward_along(x, axis, E::of(epsilon), d_y, d_x, into);
    }

    /// Divides every row by its length, or by `epsilon` if that is greater.
    pub fn l2_norm<'a, E: Element>(
        x: impl Into<Source<'a, E>>,
        epsilon: f64,
        y: impl Into<Sink<'a, E>>,
    ) {
        kernel::forward(x.into(), E::of(epsilon), y.into());
    }

    /// The derivative of [`l2_norm`].
    pub fn l2_norm_backward<E: Element>(
        x: Matrix<'_, E>,
        epsilon: f64,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let rows = x.rows();
        let width = x.cols();
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        let d_x = MatrixMut::new(d_x, rows, width);
        kernel::backward(x, E::of(epsilon), d_y, d_x, into);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axes3, Axis, HasAxes, HasShape, Shape},
        tensor::{OnesTensor, Tape, Tensor, WithEmptyTape, ZerosTensor},
        tensor_ops::{BroadcastTo, ChooseFrom, Device, PermuteTo, SumTo, TryAdd, TryDiv, TryLe},
    };

    use crate::{
        Element,
        composed::{contiguous, is_empty, reshape, zeros_after},
        ops::{
            LastAxis,
            shape::{around, rows},
        },
    };

    /// [`l2_norm_along`](super::l2_norm_along)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn l2_norm_along<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: Axis<I>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
    {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        let x = around::<I, _, _, _, _>(x)?;
        let x = contiguous(x.try_permute::<(usize, usize, usize), Axes3<0, 2, 1>>()?)?;
        let y = l2_norm(x, epsilon)?;
        let y = contiguous(y.try_permute::<(usize, usize, usize), Axes3<0, 2, 1>>()?)?;
        reshape(y, shape)
    }

    /// [`l2_norm`](super::l2_norm)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn l2_norm<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        epsilon: f64,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        let x = rows(x)?;
        let flat = *x.shape();
        let device = x.device().clone();
        let squares = x.with_empty_tape().try_square()?.try_sum::<(usize,), _>()?;
        let count = *squares.shape();
        // The root of 0 has no derivative, so short vectors are divided by a constant.
        let is_short = squares.try_le(E::of(epsilon * epsilon))?;
        let ones: Tensor<_, E, D> = OnesTensor::<E>::try_ones_like(&device, &count)?;
        let bound: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &count)?;
        let bound = bound.try_add(E::of(epsilon))?;
        let lengths = is_short
            .clone()
            .try_choose(ones.retaped::<T>(), squares)?
            .try_sqrt()?;
        let lengths = is_short.try_choose(bound.retaped::<T>(), lengths)?;
        reshape(x.try_div(lengths.try_broadcast_like(&flat)?)?, shape)
    }
}
