//! The softmax of the last axis.

use dfdx::{
    shapes::{Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{LastAxis, check_shape, composed, twins::twins};
use crate::{
    Backend, Element, Error,
    fused::{Array, Operation, Target, layers},
    kernel::Matrix,
};

twins! {
    /// `exp(x) / Σ exp(x)` over the last axis: numbers above 0 whose sum is 1. The largest element of a row is taken out
    /// first, so that no power overflows.
    ///
    /// -∞ becomes 0; a row of nothing else, or with +∞ or NaN, becomes NaN. PyTorch: `torch.softmax(x, -1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::softmax};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1e9, 1e9], [0.0, f32::NEG_INFINITY]]);
    /// assert_eq!(softmax(x).array(), [[0.5, 0.5], [1.0, 0.0]]);
    /// ```
    fn softmax, try_softmax, softmax_in<S: LastAxis>(x);
}

/// [`try_softmax`] in its fused or its composed form.
pub(crate) fn softmax_in<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("softmax", x.shape())?;
    if !fused {
        return Ok(composed::softmax(x)?);
    }
    let (device, shape) = (x.device().clone(), *x.shape());
    let (rows, width) = (shape.leading().num_elements(), shape.last().size());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::stale(rows, [width]);
    layers::softmax(Matrix::new(x.values(), rows, width), y.all_mut());
    let d_x = x.into_slot();
    let values = y.numbers().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_y = Matrix::new(d_y, rows, width);
            layers::softmax_backward(y.all(), d_y, &mut Target::slot(d_x), gradients)
        })?,
    )
}
