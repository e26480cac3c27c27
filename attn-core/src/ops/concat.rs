//! Vectors side by side.

use dfdx::{
    shapes::{Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{LastAxis, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operation, Output, Target, layers},
    kernel::Matrix,
    unwrap,
};

/// The vectors of two tensors side by side: `x [.., A]` and `y [.., B]` to `[.., C]`, where `C = A + B`. They may be one
/// and the same tensor.
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
/// Where [`try_concat`] has an error, and where that panics.
#[doc(alias = "cat")]
#[track_caller]
pub fn concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Tensor<S::With<Const<C>>, E, D, T> {
    unwrap(try_concat(x, y))
}

/// The fallible twin of [`concat`](fn@concat).
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `C` is not the sum of both sizes, or sizes before the last axis differ that only the running program knows.
#[track_caller]
pub fn try_concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Result<Tensor<S::With<Const<C>>, E, D, T>, Error<D::Err>> {
    concat_in(D::FUSED, x, y)
}

/// [`try_concat`] in its fused or its composed form.
#[track_caller]
pub(crate) fn concat_in<S, L: Dim, const C: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    y: Tensor<S::With<L>, E, D, T>,
) -> Result<Tensor<S::With<Const<C>>, E, D, T>, Error<D::Err>>
where
    S: LastAxis,
{
    let (leading, shape) = (x.shape().leading(), x.shape().with_last(Const::<C>));
    let (a, b) = (x.shape().last().size(), y.shape().last().size());
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
    let (device, rows) = (x.device().clone(), leading.num_elements());
    let mut operation = Operation::default();
    let (x, y) = (operation.read(x)?, operation.read(y)?);
    let mut z = Output::zeros(rows, C);
    layers::concat(
        Matrix::new(x.values(), rows, a),
        Matrix::new(y.values(), rows, b),
        z.all_mut(),
    );
    let (d_x, d_y) = (x.into_slot(), y.into_slot());
    Ok(
        operation.finish_matrix(&device, z, shape, move |d_z, gradients| {
            layers::concat_backward(0, a, d_z, &mut Target::slot(d_x), gradients);
            layers::concat_backward(a, b, d_z, &mut Target::slot(d_y), gradients)
        })?,
    )
}
