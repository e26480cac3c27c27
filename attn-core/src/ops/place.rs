//! Gradients of tensors whose numbers the derivative does not need.

use dfdx::{
    shapes::Shape,
    tensor::{Gradients, Tensor},
};

use crate::{Backend, Element};

/// Where the gradient of a contiguous tensor is, without holding on to the numbers of the tensor.
pub(super) fn gradient_of<S: Shape, E: Element, D: Backend<E>, T>(
    x: &Tensor<S, E, D, T>,
) -> impl for<'g> Fn(&'g mut Gradients<E, D>) -> Result<&'g mut [E], D::Err> + 'static {
    let ghost = x.ghost();
    move |gradients| Ok(D::host(gradients.get_or_alloc_mut(&ghost)?))
}
