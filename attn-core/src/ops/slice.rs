//! A range of an axis, and one index of an axis.

use dfdx::{
    shapes::{self, HasAxes, HasShape, ReduceShape, ReduceStridesTo, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::axis::Axis,
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// The shape without an axis.
pub(crate) type Without<S, const I: isize> = <S as ReduceShape<shapes::Axis<I>>>::Reduced;

/// A range of an axis: the indices from `start` on, as many as the shape `to` of the result has. The other sizes stay.
///
/// PyTorch: `x.narrow(I, start, len)`, or `x[.., start:start + len]`; the numbers are copied.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::slice};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// let y = slice(x.leaky_trace(), Axis::<1>, 1, (Const::<2>, Const::<2>));
/// assert_eq!(y.array(), [[2.0, 3.0], [5.0, 6.0]]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[0.0, 1.0, 1.0]; 2]);
/// ```
///
/// # Panics
/// If [`try_slice`] returns an error or panics.
#[doc(alias = "narrow")]
#[track_caller]
pub fn slice<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    start: usize,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_slice(x, axis, start, to))
}

/// The fallible version of [`slice`](fn@slice).
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis is shorter, or another size differs.
#[track_caller]
pub fn try_slice<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    start: usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    slice_with_form(D::FUSED, x, axis, start, to)
}

/// [`try_slice`] in the fused or the composed form.
#[track_caller]
pub(crate) fn slice_with_form<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    start: usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    let axis = I as usize;
    let from = dims(x.shape());
    let sizes = dims(&to);
    let fits = |i: usize| i == axis || from[i] == sizes[i];
    assert!(
        (0..from.len()).all(fits),
        "a part of axis {axis} of {from:?} is not {sizes:?}"
    );
    let part = Part {
        axis: Axis::of(&from, axis),
        start,
        len: sizes[axis],
    };
    run("slice", fused, x, part, to)
}

/// One index of an axis. The axis goes away.
///
/// PyTorch: `x.select(I, index)`, or `x[.., index]`; the numbers are copied.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::select};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// let first: Tensor<Rank1<2>, f32, _, _> = select(x.leaky_trace(), Axis::<1>, 0);
/// assert_eq!(first.array(), [1.0, 4.0]);
/// assert_eq!(first.sum().backward().get(&x).array(), [[1.0, 0.0, 0.0]; 2]);
/// ```
///
/// # Panics
/// If [`try_select`] returns an error or panics.
#[track_caller]
pub fn select<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    index: usize,
) -> Tensor<Without<S, I>, E, D, T>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    unwrap(try_select(x, axis, index))
}

/// The fallible version of [`select`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis has no such index.
#[track_caller]
pub fn try_select<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    index: usize,
) -> Result<Tensor<Without<S, I>, E, D, T>, Error<D::Err>>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    select_with_form(D::FUSED, x, axis, index)
}

/// [`try_select`] in the fused or the composed form.
#[track_caller]
pub(crate) fn select_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    index: usize,
) -> Result<Tensor<Without<S, I>, E, D, T>, Error<D::Err>>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    let to = x.shape().reduced();
    let part = Part {
        axis: Axis::of(&dims(x.shape()), I as usize),
        start: index,
        len: 1,
    };
    run("select", fused, x, part, to)
}

/// A range of an axis.
struct Part {
    axis: Axis,
    start: usize,
    len: usize,
}

/// The numbers of a range of an axis.
#[track_caller]
fn run<S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    operation: &'static str,
    fused: bool,
    x: Tensor<S, E, D, T>,
    Part { axis, start, len }: Part,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    check_shape(operation, x.shape())?;
    assert!(
        start.checked_add(len).is_some_and(|end| end <= axis.len),
        "{operation}: {len} from {start} on of an axis of size {}",
        axis.len
    );
    if !fused {
        return Ok(composed::part(x, axis, start, len, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    slices::slice(x.values(), axis, start, len, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        slices::slice_backward(axis, start, len, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// A range of an axis: [`slice`](fn@slice).
    ///
    /// # Errors
    /// The errors of [`try_slice`].
    ///
    /// # Panics
    /// The panics of [`try_slice`].
    #[track_caller]
    pub fn slice<const I: isize, S, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
        start: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S2: Shape<Concrete = S::Concrete>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| slice_with_form(fused, x, axis, start, to))
    }

    /// One index of an axis: [`select`].
    ///
    /// # Errors
    /// The errors of [`try_select`].
    ///
    /// # Panics
    /// The panics of [`try_select`].
    #[track_caller]
    pub fn select<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
        index: usize,
    ) -> Result<Tensor<<S as ReduceShape<shapes::Axis<I>>>::Reduced, E, D>, Error<D::Err>>
    where
        S: Shape + ReduceShape<shapes::Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| select_with_form(fused, x, axis, index))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            MatrixMut,
            axis::Axis,
            concat::{add_rows, copy_rows, zero_rows},
        },
        simd::WriteMode,
    };

    /// The `len` indices of an axis of `x` from `start` on. With a `len` of 1, the axis may be left out of the result.
    pub fn slice<E: Element>(x: &[E], axis: Axis, start: usize, len: usize, y: &mut [E]) {
        let columns = axis.columns(start..start + len);
        let to = MatrixMut::new(y, axis.outer, columns.len());
        copy_rows(axis.matrix(x).some_cols(columns), to);
    }

    /// The derivative of [`slice`](fn@slice).
    pub fn slice_backward<E: Element>(
        axis: Axis,
        start: usize,
        len: usize,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        let d_x = MatrixMut::new(d_x, axis.outer, axis.len * axis.inner);
        let (before, rest) = d_x.split_cols(start * axis.inner);
        let (to, behind) = rest.split_cols(len * axis.inner);
        let d_y = Axis { len, ..axis }.matrix(d_y);
        match into {
            WriteMode::Add => add_rows(d_y, to),
            WriteMode::Overwrite => {
                copy_rows(d_y, to);
                zero_rows(before);
                zero_rows(behind);
            }
        }
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{self, HasAxes, HasShape, ReduceShape, ReduceStridesTo, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use super::Without;
    use crate::{
        Element,
        kernel::axis::Axis,
        ops::shape::{dims, gather},
    };

    /// [`slice`](fn@super::slice)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn slice<const I: isize, S, S2, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: shapes::Axis<I>,
        start: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S2: Shape<Concrete = S::Concrete>,
    {
        let axis = Axis::of(&dims(x.shape()), I as usize);
        part(x, axis, start, dims(&to)[I as usize], to)
    }

    /// [`select`](super::select)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn select<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: shapes::Axis<I>,
        index: usize,
    ) -> Result<Tensor<Without<S, I>, E, D, T>, D::Err>
    where
        S: Shape + ReduceShape<shapes::Axis<I>>,
    {
        let axis = Axis::of(&dims(x.shape()), I as usize);
        let to = x.shape().reduced();
        part(x, axis, index, 1, to)
    }

    /// The `len` indices of an axis from `start` on.
    pub(in crate::ops) fn part<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        axis: Axis,
        start: usize,
        len: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        let width = len * axis.inner;
        let source = |i| i / width * axis.len * axis.inner + start * axis.inner + i % width;
        gather(x, source, to)
    }
}
