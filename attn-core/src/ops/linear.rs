//! The affine map of vectors.

use dfdx::{
    shapes::{Const, HasShape, Rank1, Rank2, Shape},
    tensor::{Tape, Tensor},
};

use super::{EndsIn, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operation, Output, Stack},
    unwrap,
};

/// `y = x Wᵀ + b`, for `x [.., I]`, `weight [O, I]`, `bias [O]` and `y [.., O]`.
///
/// PyTorch: `torch.nn.functional.linear(x, weight, bias)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::linear};
///
/// let dev = Cpu::default();
/// let x: Tensor<(usize, Const<2>), f32, _> = dev.tensor_from_vec(vec![1.0, 2.0, 3.0, 4.0], (2, Const));
/// let weight = dev.tensor([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]]);
/// let bias = dev.tensor([0.0, 0.0, 1.0]);
/// let y = linear(x, &weight, Some(&bias));
/// assert_eq!(y.as_vec(), [3.0, -1.0, 5.0, 7.0, -1.0, 9.0]);
/// ```
///
/// # Panics
/// Where [`try_linear`] has an error.
#[track_caller]
pub fn linear<S, const I: usize, const O: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    S: EndsIn<I>,
{
    unwrap(try_linear(x, weight, bias))
}

/// The fallible twin of [`linear`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_linear<S, const I: usize, const O: usize, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    linear_in(D::FUSED, x, weight, bias)
}

/// [`try_linear`] in its fused or its composed form.
pub(crate) fn linear_in<
    S,
    const I: usize,
    const O: usize,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    S: EndsIn<I>,
{
    let shape = x.shape().with_last(Const::<O>);
    check_shape("linear", x.shape())?;
    check_shape("linear", &shape)?;
    if !fused {
        return Ok(composed::linear(x, weight, bias)?);
    }
    let (device, rows) = (x.device().clone(), x.shape().leading().num_elements());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let map = Stack::new(I)
        .push(&mut operation, weight, bias)?
        .read(&mut operation);
    let mut y = Output::zeros(rows, O);
    map.forward(x.matrix(), y.all_mut());
    Ok(
        operation.finish_matrix(&device, y, shape, move |d_y, gradients| {
            map.backward(x.matrix(), d_y, &mut x.target(), gradients)
        })?,
    )
}
