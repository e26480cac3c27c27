//! The softmax of the last axis, or of any axis.

use dfdx::{
    shapes::{Axis, Dim, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::Selection,
    fused::{Array, GradTarget, Operation},
    kernel::Matrix,
    model::Pass,
    ops::{
        LastAxis, check_shape,
        shape::axis_of,
        twins::{twins, twins_along},
    },
    unwrap,
};

twins! {
    /// `exp(x) / Σ exp(x)` over the last axis: positive numbers with the sum 1. The maximum of a row is subtracted first, so that no
    /// exponential overflows.
    ///
    /// -∞ becomes 0. A row of only -∞, or with +∞ or NaN, becomes NaN. PyTorch: `torch.softmax(x, -1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::softmax};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1e9, 1e9], [0.0, f32::NEG_INFINITY]]);
    /// assert_eq!(softmax(x).array(), [[0.5, 0.5], [1.0, 0.0]]);
    /// ```
    fn softmax, try_softmax, softmax_with_form<S: LastAxis>(x);
}

/// [`try_softmax`] in the fused or the composed form.
pub(crate) fn softmax_with_form<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("softmax", x.shape())?;
    if !fused {
        return Ok(composed::softmax(x)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let rows = shape.leading().num_elements();
    let width = shape.last().size();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::uninit(rows, [width]);
    slices::softmax(Matrix::new(x.values(), rows, width), y.view_mut());
    let d_x = x.into_slot();
    let values = y.as_slice().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_y = Matrix::new(d_y, rows, width);
            slices::softmax_backward(y.view(), d_y, &mut GradTarget::slot(d_x), gradients)
        })?,
    )
}

twins_along! {
    /// `exp(x) / Σ exp(x)` along one axis: positive numbers with the sum 1. [`softmax`] is that of the last axis.
    ///
    /// -∞ becomes 0. Numbers of only -∞, or with +∞ or NaN, become NaN. PyTorch: `torch.softmax(x, 0)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::softmax_along};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1e9, 0.0], [1e9, f32::NEG_INFINITY]]);
    /// assert_eq!(softmax_along(x, Axis::<0>).array(), [[0.5, 1.0], [0.5, 0.0]]);
    /// ```
    fn softmax_along, try_softmax_along, softmax_along_with_form(x, axis);
}

/// [`try_softmax_along`] in the fused or the composed form.
pub(crate) fn softmax_along_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    check_shape("softmax", x.shape())?;
    if !fused {
        return Ok(composed::softmax_along(x, axis)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let axis = axis_of::<I>(&shape);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::uninit(axis.outer * axis.len, [axis.inner]);
    slices::softmax_along(x.values(), axis, y.as_mut_slice());
    let d_x = x.into_slot();
    let values = y.as_slice().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_x = &mut GradTarget::slot(d_x);
            slices::softmax_along_backward(y.as_slice(), axis, d_y, d_x, gradients)
        })?,
    )
}

/// [`softmax_along`] of some numbers along the axis: the others are not read, become 0, and have the gradient 0.
///
/// PyTorch: `torch.softmax(x.masked_fill(~keep, -torch.inf), 1)`, where a row without any is NaN; here it is 0.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Selection, softmax_where}};
///
/// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[2.0, 2.0], [2.0, f32::NAN]]);
/// let y = softmax_where(x, Axis::<1>, Selection::lengths(vec![2, 1]));
/// assert_eq!(y.array(), [[0.5, 0.5], [1.0, 0.0]]);
/// ```
///
/// # Panics
/// If [`try_softmax_where`] returns an error or panics.
#[doc(alias = "masked_softmax")]
#[track_caller]
pub fn softmax_where<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    selection: Selection<'_>,
) -> Tensor<S, E, D, T>
where
    S: Shape + HasAxes<Axis<I>>,
{
    unwrap(try_softmax_where(x, axis, selection))
}

/// The fallible version of [`softmax_where`].
///
/// # Errors
/// [`Error::LengthBeyondKeys`] if a length is greater than the axis; [`Error::TooLarge`] if the sizes of `x` do not fit the memory;
/// [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the selection is of other sizes.
#[track_caller]
pub fn try_softmax_where<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    selection: Selection<'_>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    softmax_where_with_form(D::FUSED, x, axis, selection)
}

/// [`try_softmax_where`] in the fused or the composed form.
#[track_caller]
pub(crate) fn softmax_where_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    selection: Selection<'_>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    check_shape("softmax", x.shape())?;
    let shape = *x.shape();
    let along = axis_of::<I>(&shape);
    selection.check("softmax", along)?;
    if !fused {
        return Ok(composed::softmax_where(x, axis, &selection)?);
    }
    let device = x.device().clone();
    let axis = along;
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::uninit(axis.outer * axis.len, [axis.inner]);
    slices::softmax_where(x.values(), axis, selection.counted(), y.as_mut_slice());
    let d_x = x.into_slot();
    let values = y.as_slice().to_vec();
    let selection = selection.into_owned();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_x = &mut GradTarget::slot(d_x);
            let of = (axis, selection.counted());
            slices::softmax_where_backward(y.as_slice(), of, d_y, d_x, gradients)
        })?,
    )
}

impl<T> Pass<'_, T> {
    /// The softmax of some numbers along one axis: [`softmax_where`].
    ///
    /// # Errors
    /// The errors of [`try_softmax_where`].
    ///
    /// # Panics
    /// The panics of [`try_softmax_where`].
    #[track_caller]
    pub fn softmax_where<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: Axis<I>,
        selection: Selection<'_>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            softmax_where_with_form(fused, x, axis, selection)
        })
    }

    /// The softmax of the last axis: [`softmax`].
    ///
    /// # Errors
    /// The errors of [`try_softmax`].
    pub fn softmax<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| softmax_with_form(fused, x))
    }

    /// The softmax along one axis: [`softmax_along`].
    ///
    /// # Errors
    /// The errors of [`try_softmax_along`].
    pub fn softmax_along<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: Axis<I>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| softmax_along_with_form(fused, x, axis))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            Matrix, MatrixMut,
            axis::{Axis, Counted},
            rows::{Sink, Source},
            softmax as shares,
        },
    };

    /// The softmax along an axis of the `counted` numbers. The others become 0.
    pub fn softmax_where<E: Element>(x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
        shares::forward_where(x, axis, counted, y);
    }

    /// The derivative of [`softmax_where`], given its result `y`.
    pub fn softmax_where_backward<E: Element>(
        y: &[E],
        (axis, counted): (Axis, Counted<'_>),
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| {
            shares::backward_where(y, d_y, axis, counted, d_x)
        })
    }

    /// The softmax of every row.
    pub fn softmax<'a, E: Element>(x: impl Into<Source<'a, E>>, y: impl Into<Sink<'a, E>>) {
        shares::forward(x.into(), y.into());
    }

    /// The derivative of [`softmax`], given its result `y`.
    pub fn softmax_backward<E: Element>(
        y: Matrix<'_, E>,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let rows = y.rows();
        let width = y.cols();
        d_x.accumulate(gradients, |d_x| {
            shares::backward(y, d_y, MatrixMut::new(d_x, rows, width));
        })
    }

    /// The softmax along an axis.
    pub fn softmax_along<E: Element>(x: &[E], axis: Axis, y: &mut [E]) {
        shares::forward_along(x, axis, y);
    }

    /// The derivative of [`softmax_along`], given its result `y`.
    pub fn softmax_along_backward<E: Element>(
        y: &[E],
        axis: Axis,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| shares::backward_along(y, d_y, axis, d_x))
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, HasAxes, HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{
        Element,
        composed::{is_empty, reshape, zeros_after},
        data::Selection,
        ops::{
            LastAxis,
            reduce::composed::only,
            shape::{around, axis_of, rows},
        },
    };

    /// [`softmax_where`](super::softmax_where)
    ///
    /// # Errors
    /// If dfdx fails.
    pub(in crate::ops) fn softmax_where<
        const I: isize,
        S,
        E: Element,
        D: Device<E>,
        T: Tape<E, D>,
    >(
        x: Tensor<S, E, D, T>,
        _: Axis<I>,
        selection: &Selection<'_>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
    {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        let marks = selection.counted().marks(axis_of::<I>(&shape));
        // A number of -∞ where the whole column is one makes NaN, which reaches no gradient of what was counted.
        let x = only(around::<I, _, _, _, _>(x)?, &marks, f64::NEG_INFINITY)?;
        reshape(only(x.try_softmax::<Axis<1>>()?, &marks, 0.0)?, shape)
    }

    /// [`softmax`](super::softmax)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn softmax<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        reshape(rows(x)?.try_softmax::<Axis<1>>()?, shape)
    }

    /// [`softmax_along`](super::softmax_along)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn softmax_along<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: Axis<I>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
    {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        reshape(around::<I, _, _, _, _>(x)?.try_softmax::<Axis<1>>()?, shape)
    }
}
