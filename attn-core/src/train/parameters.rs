//! The parameters of a model for an optimizer, and those that have no gradient.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;

use dfdx::{
    nn::tensor_collection::TensorCollection,
    tensor::{Gradients, UniqueId},
};

use super::{ParameterInfo, UpdateError};
use crate::{Backend, Element, fused::merge};

pub(super) use crate::model::parameters::{Made, ParamPath, Parameter, for_each, for_each_mut};

impl ParamPath {
    /// The properties of a parameter of these sizes here.
    pub(super) fn info<'a>(&'a self, dims: &'a [usize]) -> ParameterInfo<'a> {
        ParameterInfo {
            name: &self.name,
            dims,
            module: self.module,
        }
    }
}

/// Whether every parameter that needs one has a gradient.
pub(super) fn check_gradients<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
    is_needed: impl Fn(UniqueId) -> bool,
) -> Result<(), UpdateError<D::Err>> {
    let missing = without_gradient(model, gradients)?.into_iter();
    let missing = missing.filter(|(_, id)| is_needed(*id));
    let names: Vec<_> = missing.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(UpdateError::NoGradient { names })
}

/// The parameters without a gradient. Afterwards they have a gradient of zeros.
///
/// dfdx does not tell whether a gradient exists, since access creates it. But when tapes are merged, the gradients of the second tape
/// replace those of the first. So the first tape has an empty gradient for every parameter, and a gradient that is still empty after
/// the merge was missing.
pub(super) fn without_gradient<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
    gradients: &mut Gradients<E, D>,
) -> Result<Vec<(String, UniqueId)>, D::Err> {
    let mut device = None;
    let mut ids = Vec::new();
    let Ok(()) = for_each(model, |_, parameter| {
        device.get_or_insert_with(|| parameter.device().clone());
        ids.push(parameter.id());
        Ok::<_, Infallible>(())
    });
    let Some(device) = device else {
        return Ok(Vec::new());
    };
    let EmptyGradients {
        lens,
        gradients: empty,
        ..
    } = EmptyGradients::of(model, ids)?;
    let given = std::mem::replace(gradients, Gradients::leaky());
    *gradients = merge(&device, empty, given)?;
    let mut missing = Vec::new();
    let mut lens = lens.into_iter();
    for_each(model, |path, parameter| {
        let gradient = parameter.gradient(gradients)?;
        // The first of the parameters that share a gradient has its length.
        let len = lens.next().unwrap_or_default();
        if gradient.len() < len {
            gradient.resize(len, E::zero());
            missing.push((path.name, parameter.id()));
        }
        Ok::<_, D::Err>(())
    })?;
    Ok(missing)
}

/// Empty gradients for the parameters of a model.
#[derive(Clone)]
struct EmptyGradients<E: Element, D: Backend<E>> {
    ids: Vec<UniqueId>,
    /// The lengths of the gradients, or 0 if an earlier parameter has the same gradient.
    lens: Vec<usize>,
    gradients: Gradients<E, D>,
}

thread_local! {
    /// The [`EmptyGradients`] of the last model. dfdx must allocate a gradient before it can be emptied, which would take as much memory
    /// as the parameters in every step.
    static LAST: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

impl<E: Element, D: Backend<E>> EmptyGradients<E, D> {
    /// The empty gradients of the parameters with these ids.
    fn of<M: TensorCollection<E, D>>(model: &M, ids: Vec<UniqueId>) -> Result<Self, D::Err> {
        let last = LAST.take();
        let last = last.and_then(|last| last.downcast::<Self>().ok());
        let empty = match last.filter(|last| last.ids == ids) {
            Some(last) => last,
            None => Box::new(Self::new(model, ids)?),
        };
        let found = Self::clone(&empty);
        LAST.set(Some(empty));
        Ok(found)
    }

    fn new<M: TensorCollection<E, D>>(model: &M, ids: Vec<UniqueId>) -> Result<Self, D::Err> {
        let mut lens = Vec::new();
        let mut gradients = Gradients::leaky();
        for_each(model, |_, parameter| {
            lens.push(std::mem::take(parameter.gradient(&mut gradients)?).len());
            Ok::<_, D::Err>(())
        })?;
        Ok(Self {
            ids,
            lens,
            gradients,
        })
    }
}
