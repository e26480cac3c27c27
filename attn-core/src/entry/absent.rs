//! Inputs of a model that a call leaves out: a tensor of their default takes the place of each.

use dfdx::{
    shapes::{Shape, Unit},
    tensor::{OnesTensor, Storage, Tensor, TensorFromVec, ZerosTensor},
};

use crate::Error;

/// The tensor, or one of this shape in which every element is `value`. PyTorch: `torch.full`.
///
/// # Errors
/// The error of the device.
pub fn or_full<S: Shape, E: Unit, D: TensorFromVec<E>>(
    given: Option<Tensor<S, E, D>>,
    device: &D,
    shape: S,
    value: E,
) -> Result<Tensor<S, E, D>, Error<D::Err>> {
    let make = || device.try_tensor_from_vec(vec![value; shape.num_elements()], shape);
    Ok(given.map_or_else(make, Ok)?)
}

/// The tensor, or one of this shape that counts along the last axis, from `start` on. PyTorch: `torch.arange(start, start + n).expand(..)`.
///
/// # Errors
/// The error of the device.
pub fn or_count<S: Shape, D: TensorFromVec<usize>>(
    given: Option<Tensor<S, usize, D>>,
    device: &D,
    shape: S,
    start: usize,
) -> Result<Tensor<S, usize, D>, Error<D::Err>> {
    let sizes = shape.concrete();
    let last = sizes.into_iter().last().unwrap_or(1);
    let make = || {
        let row = 0..last;
        let rows = shape.num_elements().checked_div(last).unwrap_or(0);
        let values = (0..rows).flat_map(|_| row.clone().map(|index| start.saturating_add(index)));
        device.try_tensor_from_vec(values.collect(), shape)
    };
    Ok(given.map_or_else(make, Ok)?)
}

/// The mask, or one of this shape in which every element is `value`.
///
/// # Errors
/// The error of the device.
pub fn or_marks<S: Shape, D: Storage<bool> + OnesTensor<bool> + ZerosTensor<bool>>(
    given: Option<Tensor<S, bool, D>>,
    device: &D,
    shape: S,
    value: bool,
) -> Result<Tensor<S, bool, D>, Error<D::Err>> {
    let make = || match value {
        true => device.try_ones_like(&shape),
        false => device.try_zeros_like(&shape),
    };
    Ok(given.map_or_else(make, Ok)?)
}
