//! The backward pass from a given gradient.

use dfdx::{
    shapes::{HasShape, Rank0, Shape},
    tensor::{Gradients, OwnedTape, PutTape, SplitTape, Tape, Tensor},
    tensor_ops::{Backward, SumTo, TryMul},
};

use super::{gradients::accumulate, zeros};
use crate::{
    Backend, Element, Error,
    composed::{contiguous, fresh, is_empty, reshape},
    unwrap,
};

/// The gradients of `Σ y * upstream`: the backward pass from the gradient `upstream` of the tensor `y`.
///
/// That is how a derivative goes on from one that was computed elsewhere. The gradients are those of `(y * upstream).sum().backward()`, without
/// the product, the sum and their derivatives. `upstream` itself has none.
///
/// PyTorch: `y.backward(upstream)`.
///
/// ```
/// use attn::dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<3>, f64, _> = dev.tensor([1.0, 2.0, 3.0]);
/// let upstream = dev.tensor([1.0, 10.0, -1.0]);
/// let gradients = attn::backward(x.leaky_trace().square(), &upstream);
/// assert_eq!(gradients.get(&x).array(), [2.0, 40.0, -6.0]);
/// ```
///
/// # Panics
/// If [`try_backward`] returns an error or panics.
#[track_caller]
pub fn backward<S: Shape, E: Element, D: Backend<E>>(
    y: Tensor<S, E, D, OwnedTape<E, D>>,
    upstream: &Tensor<S, E, D>,
) -> Gradients<E, D> {
    unwrap(try_backward(y, upstream))
}

/// The fallible version of [`backward`].
///
/// # Errors
/// [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If sizes differ at run time.
#[track_caller]
pub fn try_backward<S: Shape, E: Element, D: Backend<E>>(
    y: Tensor<S, E, D, OwnedTape<E, D>>,
    upstream: &Tensor<S, E, D>,
) -> Result<Gradients<E, D>, Error<D::Err>> {
    assert_eq!(
        y.shape(),
        upstream.shape(),
        "the upstream gradient has the shape of the tensor"
    );
    let device = y.device().clone();
    let loss: Tensor<Rank0, E, D> = device.try_zeros()?;
    if is_empty(y.shape()) {
        // dfdx has no sum of nothing.
        let (_, tape) = y.split_tape();
        return Ok(loss.put_tape(tape).try_backward()?);
    }
    if !D::FUSED {
        let count = (y.shape().num_elements(),);
        // It has another id: `upstream` may be a leaf of `y`, too.
        let products = reshape(y.try_mul(fresh(upstream.clone())?)?, count)?;
        return Ok(products.try_sum::<Rank0, _>()?.try_backward()?);
    }
    // A gradient has the layout of its tensor: that of a view is none of this shape.
    let (y, mut tape) = contiguous(y)?.split_tape();
    let upstream = contiguous(upstream.clone())?;
    let d_y = y.ghost();
    // It runs behind that of the loss, and before all operations of the tape.
    tape.add_backward_op(move |gradients| {
        let mut numbers = zeros(upstream.shape().num_elements());
        upstream.copy_into(&mut numbers);
        accumulate(D::host(gradients.get_or_alloc_mut(&d_y)?), &numbers);
        Ok(())
    });
    Ok(loss.put_tape(tape).try_backward()?)
}
