//! Values along a new axis.

use dfdx::{
    shapes::{self, HasShape, ReduceShape, Shape},
    tensor::{PutTape, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::axis::Axis,
    model::Pass,
    ops::{check_shape, concat::slices::concat_along_backward, shape::dims, slice::Without},
    unwrap,
};

/// Stacks tensors of one shape along a new axis: `I` is its index in the result `to`, and its size is the number of the tensors.
///
/// PyTorch: `torch.stack(values, I)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::stack};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f32, _> = dev.tensor([1.0, 2.0]);
/// let y: Tensor<Rank1<2>, f32, _> = dev.tensor([3.0, 4.0]);
/// let z = stack([x, y], Axis::<1>, (Const::<2>, Const::<2>));
/// assert_eq!(z.array(), [[1.0, 3.0], [2.0, 4.0]]);
/// ```
///
/// # Panics
/// If [`try_stack`] returns an error or panics.
#[track_caller]
pub fn stack<const N: usize, const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    values: [Tensor<Without<S, I>, E, D, T>; N],
    axis: shapes::Axis<I>,
    to: S,
) -> Tensor<S, E, D, T>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    unwrap(try_stack(values, axis, to))
}

/// The fallible version of [`stack`](fn@stack).
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If there are no values, or the sizes do not fit.
#[track_caller]
pub fn try_stack<const N: usize, const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    values: [Tensor<Without<S, I>, E, D, T>; N],
    axis: shapes::Axis<I>,
    to: S,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    stack_with_form(D::FUSED, Vec::from(values), axis, to)
}

/// [`try_stack`] in the fused or the composed form.
#[track_caller]
pub(crate) fn stack_with_form<const I: isize, S, E, D, T>(
    fused: bool,
    values: Vec<Tensor<Without<S, I>, E, D, T>>,
    axis: shapes::Axis<I>,
    to: S,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    check_shape("stack", &to)?;
    let sizes = dims(&to);
    let mut without = sizes.clone();
    let len = without.remove(I as usize);
    let fits = |x: &Tensor<_, E, D, T>| dims(x.shape()) == without;
    assert!(
        len == values.len() && len > 0 && values.iter().all(fits),
        "{} values of {:?} along a new axis {I} are not {sizes:?}",
        values.len(),
        values.first().map(|x| dims(x.shape())).unwrap_or_default()
    );
    if !fused {
        return Ok(composed::stack_all(values, axis, to)?);
    }
    let device = values[0].device().clone();
    let axis = Axis::of(&sizes, I as usize);
    let mut operation = Operation::default();
    let mut operands = Vec::with_capacity(len);
    for x in values {
        operands.push(operation.read(x)?);
    }
    let mut z = zeros(axis.elements());
    let numbers: Vec<_> = operands.iter().map(|x| x.values()).collect();
    slices::stack(&numbers, axis, &mut z);
    let slots: Vec<_> = operands.into_iter().map(|x| x.into_slot()).collect();
    Ok(operation.finish(&device, z, to, move |d_z, gradients| {
        for (i, slot) in slots.into_iter().enumerate() {
            let d_x = &mut GradTarget::slot(slot);
            concat_along_backward(axis, i, 1, d_z, d_x, gradients);
        }
    })?)
}

impl<T> Pass<'_, T> {
    /// Stacks tensors of one shape along a new axis: [`stack`](fn@stack).
    ///
    /// # Errors
    /// The errors of [`try_stack`].
    ///
    /// # Panics
    /// The panics of [`try_stack`].
    #[track_caller]
    pub fn stack<const N: usize, const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        values: [&Tensor<Without<S, I>, E, D>; N],
        axis: shapes::Axis<I>,
        to: S,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + ReduceShape<shapes::Axis<I>>,
        T: Tape<E, D>,
    {
        let fused = self.fused::<E, D>();
        self.with_tape(|tape| {
            let mut tape = Some(tape);
            let values = values.map(|x| x.clone().put_tape(tape.take().unwrap_or_default()));
            stack_with_form(fused, Vec::from(values), axis, to)
        })
    }

    /// Stacks the values of the steps of a loop along a new first axis, the last step first if it runs backwards. There may be none.
    ///
    /// # Errors
    /// The errors of [`try_stack`].
    ///
    /// # Panics
    /// The panics of [`try_stack`].
    #[track_caller]
    pub fn stack_steps<S, E: Element, D: Backend<E>>(
        &mut self,
        device: &D,
        mut values: Vec<Tensor<Without<S, 0>, E, D>>,
        reverse: bool,
        to: S,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + ReduceShape<shapes::Axis<0>>,
        T: Tape<E, D>,
    {
        if reverse {
            values.reverse();
        }
        let fused = self.fused::<E, D>();
        self.with_tape(|tape| {
            if values.is_empty() {
                return Ok(device.try_zeros_like(&to)?.put_tape(tape));
            }
            let mut tape = Some(tape);
            let values = values.into_iter();
            let values = values.map(|x| x.put_tape(tape.take().unwrap_or_default()));
            stack_with_form(fused, values.collect(), shapes::Axis::<0>, to)
        })
    }
}

/// The operation on slices, for the fused form of a model. The derivative is that of a concatenation.
pub(crate) mod slices {
    use crate::{
        Element,
        kernel::{Matrix, MatrixMut, axis::Axis, concat::copy_rows},
    };

    /// Stacks values along an axis of the result, whose size is their number.
    pub fn stack<E: Element>(values: &[&[E]], axis: Axis, z: &mut [E]) {
        let Axis { outer, inner, .. } = axis;
        let mut rest = MatrixMut::new(z, outer, axis.len * inner);
        for x in values {
            let (to, others) = rest.split_cols(inner);
            copy_rows(Matrix::new(x, outer, inner), to);
            rest = others;
        }
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, HasShape, ReduceShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{
        Element,
        composed::reshape,
        ops::{concat::composed::along, shape::dims, slice::Without},
    };

    /// [`stack`](fn@super::stack)
    ///
    /// # Errors
    /// If dfdx fails.
    ///
    /// # Panics
    /// If there are no values.
    pub fn stack<const N: usize, const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        values: [Tensor<Without<S, I>, E, D, T>; N],
        axis: Axis<I>,
        to: S,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + ReduceShape<Axis<I>>,
    {
        stack_all(Vec::from(values), axis, to)
    }

    /// The same for any number of values.
    pub(super) fn stack_all<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        values: Vec<Tensor<Without<S, I>, E, D, T>>,
        _: Axis<I>,
        to: S,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + ReduceShape<Axis<I>>,
    {
        let rows: usize = dims(&to)[..I as usize].iter().product();
        let mut values = values.into_iter();
        let first = values.next().expect("values to stack");
        let width = first.shape().num_elements().checked_div(rows).unwrap_or(0);
        let mut stacked = reshape(first, (rows, width))?;
        for x in values {
            let so_far = stacked.shape().1;
            stacked = along(stacked, x, rows, (rows, so_far + width))?;
        }
        reshape(stacked, to)
    }
}
