//! The projections.

use dfdx::{
    shapes::{Const, Dim, HasShape, Rank1, Rank2},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, PermuteTo, TryAdd, TryMatMul},
};

use super::empty::{is_empty, zeros_after};
use crate::Element;

/// `x Wᵀ + b`: `[batch, s, input]` to `[batch, s, output]`, as `torch.nn.functional.linear`.
#[expect(clippy::type_complexity, reason = "the shapes are the documentation")]
pub fn linear<
    B: Dim,
    S: Dim,
    const I: usize,
    const O: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, S, Const<I>), E, D, T>,
    weight: &Tensor<Rank2<O, I>, E, D>,
    bias: Option<&Tensor<Rank1<O>, E, D>>,
) -> Result<Tensor<(B, S, Const<O>), E, D, T>, D::Err> {
    let shape = (x.shape().0, x.shape().1, Const);
    if is_empty(x.shape()) {
        return zeros_after(x, shape);
    }
    let y = x.try_matmul(weight.retaped::<T>().try_permute()?)?;
    match bias {
        Some(bias) => y.try_add(bias.retaped::<T>().try_broadcast_like(&shape)?),
        None => Ok(y),
    }
}
