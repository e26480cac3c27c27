//! Concatenation along the last axis.

use dfdx::{
    shapes::{Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, Output},
    kernel::Matrix,
    model::Pass,
    ops::{LastAxis, check_shape},
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
    let leading = x.shape().leading();
    let shape = x.shape().with_last(Const::<C>);
    let a = x.shape().last().size();
    let b = y.shape().last().size();
    assert_eq!(
        leading,
        y.shape().leading(),
        "the shapes of what stands side by side"
    );
    assert_eq!(a + b, C, "{a} and {b} numbers side by side");
    check_shape("concat", &shape)?;
    if !fused {
        return Ok(composed::concat(x, y)?);
    }
    let device = x.device().clone();
    let rows = leading.num_elements();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = operation.read(y)?;
    let mut z = Output::zeros(rows, C);
    slices::concat(
        Matrix::new(x.values(), rows, a),
        Matrix::new(y.values(), rows, b),
        z.view_mut(),
    );
    let d_x = x.into_slot();
    let d_y = y.into_slot();
    Ok(
        operation.finish_matrix(&device, z, shape, move |d_z, gradients| {
            slices::concat_backward(0, a, d_z, &mut GradTarget::slot(d_x), gradients);
            slices::concat_backward(a, b, d_z, &mut GradTarget::slot(d_y), gradients)
        })?,
    )
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
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{Matrix, MatrixMut, concat as side_by_side},
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
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, Const, Dim, HasShape, Shape},
        tensor::{PutTape, SplitTape, Tape, Tensor},
        tensor_ops::{Device, TryAdd, TryConcatAlong},
    };

    use crate::{
        Element,
        composed::{depend, reshape},
        ops::LastAxis,
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
        let a = x.shape().last().size();
        let b = y.shape().last().size();
        if rows * a * b == 0 {
            // If the result has elements, it is the other tensor.
            return if a == 0 {
                after(x, y, shape)
            } else {
                after(y, x, shape)
            };
        }
        // This copy has another id: dfdx's concatenation of a tensor and itself has no derivative.
        let x = reshape(x, (rows, a))?.try_add(-E::zero())?;
        let both = (x, reshape(y, (rows, b))?).try_concat_along(Axis::<1>)?;
        reshape(both, shape)
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
