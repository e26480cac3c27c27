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
    dyn Fn(&mut Gradients<E, D>) -> Result<&mut Vec<E>, <D as dfdx::tensor::HasErr>::Err>;

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
        Ok((self.0)(gradients)?)
    }

    /// Calls `f` with the gradients of some places, which are taken out meanwhile, so that others can be written.
    ///
    /// # Errors
    /// That of `f`, or if a gradient cannot be allocated.
    pub fn lend<const N: usize>(
        places: [&Self; N],
        gradients: &mut Gradients<E, D>,
        f: impl FnOnce([&[E]; N], &mut Gradients<E, D>) -> Result<(), D::Err>,
    ) -> Result<(), D::Err> {
        let mut taken = [const { Vec::new() }; N];
        for (place, taken) in places.iter().zip(&mut taken) {
            *taken = std::mem::take((place.0)(gradients)?);
        }
        let done = f(taken.each_ref().map(Vec::as_slice), gradients);
        for (place, taken) in places.into_iter().zip(taken) {
            *(place.0)(gradients)? = taken;
        }
        done
    }
}
