//! Inputs of a model that a call leaves out: a tensor of their default takes the place of each.

use dfdx::{
    shapes::{Shape, Unit},
    tensor::{OnesTensor, Storage, Tensor, TensorFromVec, ZerosTensor},
};

use crate::Error;

/// The tensor, or one of this shape in which every element is `value`. PyTorch: `torch.full(shape, value)`.
///
/// ```
/// use attn::{__private::runtime::entry::or_full, dfdx::prelude::*};
///
/// let dev = Cpu::default();
/// let bias = or_full(None, &dev, (2, Const::<3>), 0.5_f32)?;
/// assert_eq!(bias.as_vec(), [0.5; 6]);
/// assert_eq!(or_full(Some(bias), &dev, (2, Const), 1.0)?.as_vec(), [0.5; 6]);
/// # Ok::<(), attn::Error<<Cpu as HasErr>::Err>>(())
/// ```
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

/// The tensor, or one of this shape that counts along the last axis, from `start` on. PyTorch: `torch.arange(start, start + n).expand(shape)`.
///
/// ```
/// use attn::{__private::runtime::entry::or_count, dfdx::prelude::*};
///
/// let positions = or_count(None, &Cpu::default(), (2, 3), 4)?;
/// assert_eq!(positions.as_vec(), [4, 5, 6, 4, 5, 6]);
/// # Ok::<(), attn::Error<<Cpu as HasErr>::Err>>(())
/// ```
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

/// The mask, or one of this shape in which every element is `value`. PyTorch: `torch.full(shape, value, dtype=torch.bool)`.
///
/// ```
/// use attn::{__private::runtime::entry::or_marks, dfdx::prelude::*};
///
/// let keep = or_marks(None, &Cpu::default(), (2, 2), true)?;
/// assert_eq!(keep.as_vec(), [true; 4]);
/// # Ok::<(), attn::Error<<Cpu as HasErr>::Err>>(())
/// ```
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
