//! The norm of a model's gradients as one vector, and scaling.

use std::collections::BTreeSet;

use dfdx::{nn::TensorCollection, tensor::Gradients};

use super::{
    UpdateError,
    parameters::{check_gradients, for_each},
};
use crate::{
    Backend, Element,
    kernel::{elementwise, optim::squared_norm},
};

/// The norm of all gradients of a model as one vector.
///
/// PyTorch: `torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])`. The squares are summed in `f64`, in an order
/// that depends on the model only. Parameters that share a gradient count once.
///
/// ```
/// use attn::{dfdx::prelude::*, train::grad_norm};
///
/// let model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([3.0, 4.0]);
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// assert_eq!(grad_norm(&model, &mut gradients).unwrap(), 10.0);
/// ```
///
/// # Errors
/// [`UpdateError::NoGradient`] if parameters have none; [`UpdateError::Device`] if dfdx fails.
#[doc(alias = "get_total_norm")]
pub fn grad_norm<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
) -> Result<f64, UpdateError<D::Err>> {
    check_gradients(model, gradients, |_| true)?;
    let mut squares = 0.0;
    for_each_gradient(model, gradients, |gradient| {
        squares += squared_norm(&[gradient])
    })?;
    Ok(squares.sqrt())
}

/// Scales all gradients of a model by one factor, so that [`grad_norm`] is at most `max_norm`. Returns the norm before.
///
/// Pascanu et al., "On the difficulty of training recurrent neural networks" (2013). PyTorch:
/// `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, which divides by a norm that is greater by 1e-6. If the norm
/// is infinite or NaN, the gradients do not change, and the step should be skipped.
///
/// ```
/// use attn::{dfdx::prelude::*, train::clip_grad_norm};
///
/// let model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([3.0, 4.0]);
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// assert_eq!(clip_grad_norm(&model, &mut gradients, 5.0).unwrap(), 10.0);
/// assert_eq!(gradients.get(&model).array(), [3.0, 4.0]);
/// ```
///
/// # Errors
/// The errors of [`grad_norm`], and [`UpdateError::Config`] if `max_norm` is less than 0, or NaN.
#[doc(alias("clip_grad_norm_", "clip_norm"))]
pub fn clip_grad_norm<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    max_norm: f64,
) -> Result<f64, UpdateError<D::Err>> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(UpdateError::Config {
            name: "max_norm",
            found: max_norm,
            expected: "0 or more",
        });
    }
    let norm = grad_norm(model, gradients)?;
    if norm.is_finite() && norm > max_norm {
        scale(model, gradients, max_norm / norm)?;
    }
    Ok(norm)
}

/// Multiplies all gradients of a model by a factor, for example to turn the sum over several batches into the mean.
///
/// Gradients that are passed from one backward pass to the next are accumulated. After `n` batches of the same size with mean
/// losses, a factor of `1 / n` gives the gradients of one batch of all examples. If batches have different counts, because
/// targets are ignored or a batch is smaller, multiply each mean loss by its count, and divide here by the total count. PyTorch:
/// `loss = loss / n`, before each backward pass.
///
/// ```
/// use attn::{dfdx::prelude::*, train::scale_grads};
///
/// let dev = Cpu::default();
/// let model: Tensor<Rank1<2>, f64, _> = dev.tensor([1.0, 2.0]);
/// let mut gradients = model.alloc_grads();
/// for x in [[1.0, 0.0], [3.0, 4.0]] {
///     let loss = (model.trace(gradients) * dev.tensor(x)).sum();
///     gradients = loss.backward();
/// }
/// assert_eq!(gradients.get(&model).array(), [4.0, 4.0]);
/// scale_grads(&model, &mut gradients, 1.0 / 2.0).unwrap();
/// assert_eq!(gradients.get(&model).array(), [2.0, 2.0]);
/// ```
///
/// # Errors
/// The errors of [`grad_norm`], and [`UpdateError::Config`] if `factor` is NaN or infinite, such as `1 / 0` batches.
#[doc(alias = "gradient_accumulation_steps")]
pub fn scale_grads<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    factor: f64,
) -> Result<(), UpdateError<D::Err>> {
    if !factor.is_finite() {
        return Err(UpdateError::Config {
            name: "factor",
            found: factor,
            expected: "a finite number",
        });
    }
    check_gradients(model, gradients, |_| true)?;
    Ok(scale(model, gradients, factor)?)
}

/// [`scale_grads`] for parameters that all have a gradient.
fn scale<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    factor: f64,
) -> Result<(), D::Err> {
    let factor = E::of(factor);
    for_each_gradient(model, gradients, |gradient| {
        elementwise::scale(factor, gradient);
    })
}

/// Calls `f` with every gradient of the model, once.
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
