//! Concatenation along the last axis, or any other.

use dfdx::{
    shapes::{self, Const, Dim, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::axis::Axis,
    model::Pass,
    ops::{LastAxis, check_shape, shape::dims},
    unwrap,
};

/// Concatenates two tensors along the last axis: `x [.., A]` and `y [.., B]` to `[.., C]`, where `C = A + B`. Both may be the same
/// tensor.
///
/// PyTorch: `torch.cat((x, y), -1)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::concat};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<2, 1>, f32, _> = dev.tensor([[1.0], [2.0]]);
/// let y: Tensor<Rank2<2, 2>, f32, _> = dev.tensor([[3.0, 4.0], [5.0, 6.0]]);
/// let z: Tensor<Rank2<2, 3>, f32, _> = concat(x, y);
/// assert_eq!(z.array(), [[1.0, 3.0, 4.0], [2.0, 5.0, 6.0]]);
/// ```
///
/// # Panics
/// If [`try_concat`] returns an error or panics.
#[doc(alias = "cat")]
#[track_caller]
pub fn concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Tensor<S::With<Const<C>>, E, D, T> {
    unwrap(try_concat(x, y))
}

/// The fallible version of [`concat`](fn@concat).
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `C` is not the sum of both sizes, or if other sizes differ at run time.
#[track_caller]
pub fn try_concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Result<Tensor<S::With<Const<C>>, E, D, T>, Error<D::Err>> {
    concat_with_form(D::FUSED, x, y)
}

/// [`try_concat`] in the fused or the composed form.
#[track_caller]
pub(crate) fn concat_with_form<
    S,
    L: Dim,
    const C: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Result<Tensor<S::With<Const<C>>, E, D, T>, Error<D::Err>>
where
    S: LastAxis,
{
    let shape = x.shape().with_last(Const::<C>);
    let a = x.shape().last().size();
    let b = y.shape().last().size();
    assert_eq!(
        x.shape().leading(),
        y.shape().leading(),
        "the shapes of what stands side by side"
    );
    assert_eq!(a + b, C, "{a} and {b} numbers side by side");
    let last = dims(&shape).len() - 1;
    run(fused, x, y, last, a, shape)
}

/// Concatenates two tensors along any axis: `I` is its index. The other axes of `x`, `y` and the result `to` have the same sizes, and the
/// size of this one is the sum. `x` and `y` may be the same tensor.
///
/// PyTorch: `torch.cat((x, y), I)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::concat_along};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 2>, f32, _> = dev.tensor([[1.0, 2.0]]);
/// let y: Tensor<(usize, Const<2>), f32, _> = dev.tensor([[3.0, 4.0], [5.0, 6.0]]).realize();
/// let z = concat_along(x, y, Axis::<0>, (Const::<3>, Const));
/// assert_eq!(z.array(), [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// ```
///
/// # Panics
/// If [`try_concat_along`] returns an error or panics.
#[doc(alias = "cat")]
#[track_caller]
pub fn concat_along<const I: isize, S, S1, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S1, E, D, T>,
    axis: shapes::Axis<I>,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S1: Shape<Concrete = S::Concrete>,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_concat_along(x, y, axis, to))
}

/// The fallible version of [`concat_along`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the sizes do not fit.
#[track_caller]
pub fn try_concat_along<const I: isize, S, S1, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S1, E, D, T>,
    axis: shapes::Axis<I>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S1: Shape<Concrete = S::Concrete>,
    S2: Shape<Concrete = S::Concrete>,
{
    concat_along_with_form(D::FUSED, x, y, axis, to)
}

/// [`try_concat_along`] in the fused or the composed form.
#[track_caller]
pub(crate) fn concat_along_with_form<const I: isize, S, S1, S2, E, D, T>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S1, E, D, T>,
    _: shapes::Axis<I>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S1: Shape<Concrete = S::Concrete>,
    S2: Shape<Concrete = S::Concrete>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let axis = I as usize;
    let [of_x, of_y, of_z] = [dims(x.shape()), dims(y.shape()), dims(&to)];
    let fits = (0..of_z.len()).all(|i| match i == axis {
        true => of_x[i].checked_add(of_y[i]) == Some(of_z[i]),
        false => of_x[i] == of_z[i] && of_y[i] == of_z[i],
    });
    assert!(
        fits,
        "{of_x:?} and {of_y:?} along axis {axis} are not {of_z:?}"
    );
    run(fused, x, y, axis, of_x[axis], to)
}

/// Concatenates along an axis, of which `x` has the first `a` indices. The sizes fit.
fn run<S: Shape, S1: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S1, E, D, T>,
    axis: usize,
    a: usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    check_shape("concat", &to)?;
    let axis = Axis::of(&dims(&to), axis);
    if !fused {
        return Ok(composed::along(x, y, axis.outer, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = operation.read(y)?;
    let mut z = zeros(to.num_elements());
    slices::concat_along(x.values(), y.values(), axis, a, &mut z);
    let d_x = x.into_slot();
    let d_y = y.into_slot();
    Ok(operation.finish(&device, z, to, move |d_z, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        let d_y = &mut GradTarget::slot(d_y);
        slices::concat_along_backward(axis, 0, a, d_z, d_x, gradients);
        slices::concat_along_backward(axis, a, axis.len - a, d_z, d_y, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Concatenates along the last axis, `[.., A]` and `[.., B]` to `[.., C]`: [`concat`](fn@concat).
    ///
    /// # Errors
    /// The errors of [`try_concat`].
    ///
    /// # Panics
    /// The panics of [`try_concat`].
    #[track_caller]
    pub fn concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        y: &Tensor<S::With<L>, E, D>,
    ) -> Result<Tensor<S::With<Const<C>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| concat_with_form(fused, x, y.retaped()))
    }

    /// Concatenates along any axis: [`concat_along`].
    ///
    /// # Errors
    /// The errors of [`try_concat_along`].
    ///
    /// # Panics
    /// The panics of [`try_concat_along`].
    #[track_caller]
    pub fn concat_along<const I: isize, S, S1, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        y: &Tensor<S1, E, D>,
        axis: shapes::Axis<I>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S1: Shape<Concrete = S::Concrete>,
        S2: Shape<Concrete = S::Concrete>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            concat_along_with_form(fused, x, y.retaped(), axis, to)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{Matrix, MatrixMut, axis::Axis, concat as side_by_side},
    };

    /// Concatenates the rows of `x` and `y`.
    pub fn concat<E: Element>(x: Matrix<'_, E>, y: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        side_by_side::forward(x, y, to);
    }

    /// The derivative of [`concat`](fn@concat) for the operand with the `width` columns from `start` on.
    pub fn concat_backward<E: Element>(
        start: usize,
        width: usize,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| {
            let to = MatrixMut::new(d_x, d_y.rows(), width);
            side_by_side::add_rows(d_y.some_cols(start..start + width), to);
        })
    }

    /// Concatenates `x` and `y` along an axis of the result, of which `x` has the first `a` indices.
    pub fn concat_along<E: Element>(x: &[E], y: &[E], axis: Axis, a: usize, z: &mut [E]) {
        let of = |len| Axis { len, ..axis };
        let z = MatrixMut::new(z, axis.outer, axis.len * axis.inner);
        concat(of(a).matrix(x), of(axis.len - a).matrix(y), z);
    }

    /// The derivative of [`concat_along`] for the operand with the `len` indices of the axis from `start` on.
    pub fn concat_along_backward<E: Element>(
        axis: Axis,
        start: usize,
        len: usize,
        d_z: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let columns = axis.columns(start..start + len);
        let d_z = axis.matrix(d_z);
        concat_backward(columns.start, columns.len(), d_z, d_x, gradients);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, Const, Dim, HasAxes, HasShape, Shape},
        tensor::{PutTape, SplitTape, Tape, Tensor},
        tensor_ops::{Device, TryAdd, TryConcatAlong},
    };

    use crate::{
        Element,
        composed::{depend, reshape},
        ops::{LastAxis, shape::dims},
    };

    /// [`concat`](fn@super::concat)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn concat<S, L: Dim, const C: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S::With<L>, E, D, T>,
    ) -> Result<Tensor<S::With<Const<C>>, E, D, T>, D::Err>
    where
        S: LastAxis,
    {
        let shape = x.shape().with_last(Const::<C>);
        let rows = x.shape().leading().num_elements();
        along(x, y, rows, shape)
    }

    /// [`concat_along`](super::concat_along)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn concat_along<const I: isize, S, S1, S2, E, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S1, E, D, T>,
        _: Axis<I>,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
        S1: Shape<Concrete = S::Concrete>,
        S2: Shape<Concrete = S::Concrete>,
        E: Element,
    {
        let rows = dims(&to)[..I as usize].iter().product();
        along(x, y, rows, to)
    }

    /// Concatenates the rows of two matrices of `rows` rows.
    pub(in crate::ops) fn along<S, S1, S2, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        y: Tensor<S1, E, D, T>,
        rows: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape,
        S1: Shape,
        S2: Shape,
    {
        let sizes = [x.shape().num_elements(), y.shape().num_elements()];
        let [a, b] = sizes.map(|size| size.checked_div(rows).unwrap_or(0));
        if a * b == 0 {
            // If the result has elements, it is the other tensor.
            return if a == 0 {
                after(x, y, to)
            } else {
                after(y, x, to)
            };
        }
        // This copy has another id: dfdx's concatenation of a tensor and itself has no derivative.
        let x = reshape(x, (rows, a))?.try_add(-E::zero())?;
        let both = (x, reshape(y, (rows, b))?).try_concat_along(Axis::<1>)?;
        reshape(both, to)
    }

    /// Reshapes `x`, and merges both tapes.
    fn after<A: Shape, S: Shape, Dst: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        nothing: Tensor<A, E, D, T>,
        x: Tensor<S, E, D, T>,
        shape: Dst,
    ) -> Result<Tensor<Dst, E, D, T>, D::Err> {
        let (x, tape) = reshape(x, shape)?.split_tape();
        Ok(x.put_tape(tape.merge(depend(nothing))))
    }
}
