//! Tensors with no elements, or made of such.
//!
//! dfdx's strided iteration reads element 0 before it looks at the size, so it panics on a tensor that has none.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{PutTape, SplitTape, Tape, Tensor, ZerosTensor},
    tensor_ops::{Device, ReshapeTo},
};

use crate::Element;

/// Whether a shape has no elements.
pub(crate) fn is_empty<S: Shape>(shape: &S) -> bool {
    shape.concrete().into_iter().any(|size| size == 0)
}

/// dfdx's reshape, for empty tensors too.
pub(crate) fn reshape<Src: Shape, Dst: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<Src, E, D, T>,
    to: Dst,
) -> Result<Tensor<Dst, E, D, T>, D::Err> {
    if is_empty(x.shape()) {
        zeros_after(x, to)
    } else {
        x.try_reshape_like(&to)
    }
}

/// Zeros that do not depend on `x`, on the tape of `x`: its gradient will exist, and be 0.
pub(crate) fn zeros_after<Src: Shape, Dst: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<Src, E, D, T>,
    shape: Dst,
) -> Result<Tensor<Dst, E, D, T>, D::Err> {
    let zeros: Tensor<Dst, E, D> = ZerosTensor::<E>::try_zeros_like(x.device(), &shape)?;
    Ok(zeros.put_tape(depend(x)))
}

/// As [`zeros_after`], of two tensors.
pub(crate) fn zeros_after_both<
    A: Shape,
    C: Shape,
    Dst: Shape,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    a: Tensor<A, E, D, T>,
    b: Tensor<C, E, D, T>,
    shape: Dst,
) -> Result<Tensor<Dst, E, D, T>, D::Err> {
    let (zeros, tape) = zeros_after(a, shape)?.split_tape();
    Ok(zeros.put_tape(tape.merge(depend(b))))
}

/// The tape of `x`, with the order to allocate its gradient, so that asking for it is no panic.
pub(crate) fn depend<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> T {
    let (x, mut tape) = x.split_tape();
    let ghost = x.ghost();
    tape.add_backward_op(move |gradients| gradients.try_alloc_for(&ghost));
    tape
}
