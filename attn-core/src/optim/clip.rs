//! How long gradients are.

use std::collections::BTreeSet;

use dfdx::{nn::TensorCollection, tensor::Gradients};

use super::{
    UpdateError,
    parameters::{for_each, without_gradient},
};
use crate::{
    Backend, Element,
    kernel::{elementwise, optim::squared_norm},
};

/// The length of all gradients of a model as one vector.
///
/// PyTorch: `torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])`. The squares are summed in `f64`, in an
/// order that depends on the model alone; parameters that share a gradient count once.
///
/// ```
/// use attn_core::optim::grad_norm;
/// use dfdx::prelude::*;
///
/// let model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([3.0, 4.0]);
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// assert_eq!(grad_norm(&model, &mut gradients).unwrap(), 10.0);
/// ```
///
/// # Errors
/// [`UpdateError::NoGradient`] if parameters have none; [`UpdateError::Device`] if dfdx fails.
pub fn grad_norm<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
) -> Result<f64, UpdateError<D::Err>> {
    let missing = without_gradient(model, gradients)?;
    if !missing.is_empty() {
        let names = missing.into_iter().map(|(name, _)| name).collect();
        return Err(UpdateError::NoGradient { names });
    }
    let mut squares = 0.0;
    for_each_gradient(model, gradients, |gradient| {
        squares += squared_norm(gradient)
    })?;
    Ok(squares.sqrt())
}

/// Scales all gradients of a model by one factor, so that [`grad_norm`] is at most `max_norm`, and returns what it was.
///
/// Pascanu et al., "On the difficulty of training recurrent neural networks" (2013). PyTorch:
/// `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, which divides by a norm that is greater by 1e-6. If the
/// norm is infinite or NaN, the gradients are left alone: such a step is better skipped.
///
/// ```
/// use attn_core::optim::clip_grad_norm;
/// use dfdx::prelude::*;
///
/// let model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([3.0, 4.0]);
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// assert_eq!(clip_grad_norm(&model, &mut gradients, 5.0).unwrap(), 10.0);
/// assert_eq!(gradients.get(&model).array(), [3.0, 4.0]);
/// ```
///
/// # Errors
/// As [`grad_norm`].
///
/// # Panics
/// If `max_norm` is less than 0, or NaN.
#[track_caller]
pub fn clip_grad_norm<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    max_norm: f64,
) -> Result<f64, UpdateError<D::Err>> {
    assert!(max_norm >= 0.0, "the greatest norm is {max_norm}");
    let norm = grad_norm(model, gradients)?;
    if norm.is_finite() && norm > max_norm {
        let factor = E::of(max_norm / norm);
        for_each_gradient(model, gradients, |gradient| {
            elementwise::scale(factor, gradient);
        })?;
    }
    Ok(norm)
}

/// Hands every gradient of the model to `f`, once.
fn for_each_gradient<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    mut f: impl FnMut(&mut [E]),
) -> Result<(), D::Err> {
    let mut seen = BTreeSet::new();
    for_each(model, |_, parameter| {
        if seen.insert(parameter.id()) {
            f(parameter.gradient(gradients)?);
        }
        Ok(())
    })
}
