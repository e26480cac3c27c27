//! Padding of an axis, and shifts along an axis.

use dfdx::{
    shapes::{self, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::{axis::Axis, pad::Moved},
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// Pads an axis with a number: `before` indices at its start, and as many at its end as the shape `to` of the result has more. The other
/// sizes stay.
///
/// PyTorch: `F.pad(x, (before, after), value=value)`, of the last axis.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::pad};
///
/// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1.0, 2.0], [3.0, 4.0]]);
/// let y = pad(x.leaky_trace(), Axis::<1>, 1, 0.5, (Const::<2>, Const::<4>));
/// assert_eq!(y.array(), [[0.5, 1.0, 2.0, 0.5], [0.5, 3.0, 4.0, 0.5]]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[1.0; 2]; 2]);
/// ```
///
/// # Panics
/// If [`try_pad`] returns an error or panics.
#[track_caller]
pub fn pad<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    before: usize,
    value: f64,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_pad(x, axis, before, value, to))
}

/// The fallible version of [`pad`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis of the result has no room for `before` indices and those of `x`, or another size differs.
#[track_caller]
pub fn try_pad<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    before: usize,
    value: f64,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    pad_with_form(D::FUSED, x, axis, before, value, to)
}

/// [`try_pad`] in the fused or the composed form.
#[track_caller]
pub(crate) fn pad_with_form<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    before: usize,
    value: f64,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    let axis = I as usize;
    let [from, sizes] = [dims(x.shape()), dims(&to)];
    let by = isize::try_from(before).ok();
    let end = before.checked_add(from[axis]);
    let fits = |i: usize| match i == axis {
        true => end.is_some_and(|end| end <= sizes[i]),
        false => from[i] == sizes[i],
    };
    let (Some(by), true) = (by, (0..from.len()).all(fits)) else {
        panic!("axis {axis} of {from:?} with {before} indices before it is not that of {sizes:?}");
    };
    let moved = Moved {
        axis: Axis::of(&from, axis),
        by,
        len: sizes[axis],
    };
    run("pad", fused, x, moved, value, to)
}

/// Moves a tensor along an axis, whose size stays: index `j` of the result is index `j - by` of `x`, and 0 where `x` has no such index.
///
/// PyTorch: `F.pad(x, (by, -by))` of the last axis, which is `x.roll(by, I)` with zeros in place of what comes round. Along a sequence,
/// `by = 1` is the token shift of RWKV.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::shift_along};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
/// assert_eq!(shift_along(x.clone(), Axis::<1>, 1).array(), [[0.0, 1.0, 2.0], [0.0, 4.0, 5.0]]);
/// assert_eq!(shift_along(x, Axis::<0>, -1).array(), [[4.0, 5.0, 6.0], [0.0; 3]]);
/// ```
///
/// # Panics
/// If [`try_shift_along`] returns an error.
#[doc(alias = "roll")]
#[track_caller]
pub fn shift_along<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    by: isize,
) -> Tensor<S, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    unwrap(try_shift_along(x, axis, by))
}

/// The fallible version of [`shift_along`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_shift_along<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    by: isize,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    shift_along_with_form(D::FUSED, x, axis, by)
}

/// [`try_shift_along`] in the fused or the composed form.
pub(crate) fn shift_along_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    by: isize,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    let axis = Axis::of(&dims(x.shape()), I as usize);
    let moved = Moved {
        axis,
        by,
        len: axis.len,
    };
    let to = *x.shape();
    run("shift", fused, x, moved, 0.0, to)
}

fn run<S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    operation: &'static str,
    fused: bool,
    x: Tensor<S, E, D, T>,
    moved: Moved,
    value: f64,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    check_shape(operation, x.shape())?;
    check_shape(operation, &to)?;
    if !fused {
        return Ok(composed::moved(x, moved, value, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    let Moved { axis, by, len } = moved;
    slices::pad(x.values(), axis, by, len, value, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        slices::pad_backward(axis, by, len, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Pads an axis with a number: [`pad`].
    ///
    /// # Errors
    /// The errors of [`try_pad`].
    ///
    /// # Panics
    /// The panics of [`try_pad`].
    #[track_caller]
    pub fn pad<const I: isize, S, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
        before: usize,
        value: f64,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S2: Shape<Concrete = S::Concrete>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            pad_with_form(fused, x, axis, before, value, to)
        })
    }

    /// Moves a tensor along an axis: [`shift_along`].
    ///
    /// # Errors
    /// The errors of [`try_shift_along`].
    pub fn shift_along<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
        by: isize,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| shift_along_with_form(fused, x, axis, by))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            axis::Axis,
            concat::add_rows,
            pad::{self, Moved},
        },
    };

    /// `x` moved `by` indices along an axis, of which the result has `len`, with `value` where `x` has no such index.
    pub fn pad<E: Element>(x: &[E], axis: Axis, by: isize, len: usize, value: f64, y: &mut [E]) {
        pad::pad(x, Moved { axis, by, len }, E::of(value), y);
    }

    /// The derivative of [`pad`](fn@pad).
    pub fn pad_backward<E: Element>(
        axis: Axis,
        by: isize,
        len: usize,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let moved = Moved { axis, by, len };
        d_x.accumulate(gradients, |d_x| {
            add_rows(moved.in_result(d_y), moved.in_operand_mut(d_x));
        })
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{self, HasAxes, HasShape, Shape},
        tensor::{PutTape, Tape, Tensor, TensorFromVec},
        tensor_ops::Device,
    };

    use crate::{
        Element,
        kernel::{axis::Axis, pad::Moved},
        ops::{concat::composed::along, shape::dims, slice::composed::part},
    };

    /// [`pad`](super::pad)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn pad<const I: isize, S, S2, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: shapes::Axis<I>,
        before: usize,
        value: f64,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S2: Shape<Concrete = S::Concrete>,
    {
        let of = Moved {
            axis: Axis::of(&dims(x.shape()), I as usize),
            by: before as isize,
            len: dims(&to)[I as usize],
        };
        moved(x, of, value, to)
    }

    /// [`shift_along`](super::shift_along)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn shift_along<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: shapes::Axis<I>,
        by: isize,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
    {
        let axis = Axis::of(&dims(x.shape()), I as usize);
        let len = axis.len;
        let to = *x.shape();
        moved(x, Moved { axis, by, len }, 0.0, to)
    }

    /// The numbers that both have, between two parts of one number.
    pub(super) fn moved<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        moved: Moved,
        value: f64,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        let Axis { outer, inner, .. } = moved.axis;
        let [count, from, before] = moved.shared();
        let device = x.device().clone();
        let filled = |width: usize| -> Result<_, D::Err> {
            let numbers = vec![E::of(value); outer * width];
            let numbers: Tensor<(usize, usize), E, D> =
                TensorFromVec::<E>::try_tensor_from_vec(&device, numbers, (outer, width))?;
            Ok(numbers.put_tape(T::default()))
        };
        let shared = part(x, moved.axis, from, count, (outer, count * inner))?;
        let start = filled(before * inner)?;
        let end = filled((moved.len - before - count) * inner)?;
        let y = along(shared, end, outer, (outer, (moved.len - before) * inner))?;
        along(start, y, outer, to)
    }
}
