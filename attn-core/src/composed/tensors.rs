//! Layouts of dfdx's tensors, also of empty ones.
//!
//! dfdx's strided iteration reads element 0 before it checks the size, so it panics on an empty tensor.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec, ZerosTensor},
    tensor_ops::{Device, ReshapeTo, TryGt},
};

use crate::Element;

/// Whether a shape has no elements.
pub(crate) fn is_empty<S: Shape>(shape: &S) -> bool {
    shape.concrete().into_iter().any(|size| size == 0)
}

/// dfdx's reshape, also for empty tensors.
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

/// Zeros on the tape of `x`. They do not depend on `x`, so its gradient is 0.
pub(crate) fn zeros_after<Src: Shape, Dst: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<Src, E, D, T>,
    shape: Dst,
) -> Result<Tensor<Dst, E, D, T>, D::Err> {
    let zeros: Tensor<Dst, E, D> = ZerosTensor::<E>::try_zeros_like(x.device(), &shape)?;
    Ok(zeros.put_tape(depend(x)))
}

/// [`zeros_after`] for two tensors.
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

/// The tape of `x`, with an operation that allocates its gradient, so that reading it does not panic.
pub(crate) fn depend<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> T {
    let (x, mut tape) = x.split_tape();
    let ghost = x.ghost();
    tape.add_backward_op(move |gradients| gradients.try_alloc_for(&ghost));
    tape
}

/// A tensor of one number, of the shape of `like`.
pub fn filled<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    like: &Tensor<S, E, D>,
    number: f64,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let numbers = vec![E::of(number); like.shape().num_elements()];
    let numbers: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(like.device(), numbers, *like.shape())?;
    Ok(numbers.put_tape(T::default()))
}

/// The same tensor in row-major order; not copied if it is row-major already.
///
/// The gradient of dfdx's matrix product is wrong for an operand that is broadcast along its matrix axes and large enough for several
/// threads: the threads add to the same memory without synchronisation.
pub fn contiguous<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, shape)
}

/// A tensor of booleans. dfdx's devices create these only by comparisons of numbers.
pub(crate) fn conditions<S: Shape, E: Element, D: Device<E>>(
    device: &D,
    conditions: impl Iterator<Item = bool>,
    shape: S,
) -> Result<Tensor<S, bool, D>, D::Err> {
    let numbers = conditions.map(|yes| if yes { E::one() } else { E::zero() });
    let numbers: Tensor<S, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(device, numbers.collect(), shape)?;
    numbers.try_gt(E::zero())
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    #[test]
    fn views_become_row_major_and_get_their_gradient() {
        let row: Tensor<Rank1<2>, f64, Cpu> = tensor((Const,), 1);
        check_gradient(&row, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().broadcast_like(&(3, Const));
            let view = contiguous(view).unwrap();
            // The physical buffer of the gradient: that of a broadcast view has two numbers.
            let mut physical = [0.0; 6];
            view.copy_into(&mut physical);
            assert_eq!(physical.as_slice(), values(&view));
            view
        });
    }
}
