//! Where gradients are.

use dfdx::{
    shapes::Shape,
    tensor::{Gradients, Tensor},
};

use crate::{Element, Host};

/// Where the gradient of a contiguous tensor is, without holding on to the numbers of the tensor.
pub struct Place<E: Element, D: Host<E>>(Box<Find<E, D>>);

/// dfdx's name of a tensor without its numbers is private, so it stays inside of a closure.
type Find<E, D> =
    dyn Fn(&mut Gradients<E, D>) -> Result<&mut [E], <D as dfdx::tensor::HasErr>::Err>;

impl<E: Element, D: Host<E>> Place<E, D> {
    /// Of the gradient of `x`.
    pub fn of<S: Shape, T>(x: &Tensor<S, E, D, T>) -> Self {
        let ghost = x.ghost();
        Self(Box::new(move |gradients| {
            Ok(D::host(gradients.get_or_alloc_mut(&ghost)?))
        }))
    }

    /// The gradient so far, to add to.
    ///
    /// # Errors
    /// If it cannot be allocated.
    pub fn find<'a>(&self, gradients: &'a mut Gradients<E, D>) -> Result<&'a mut [E], D::Err> {
        (self.0)(gradients)
    }
}
