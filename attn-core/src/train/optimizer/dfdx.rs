//! dfdx's trait of optimizers.

use dfdx::{
    nn::TensorCollection,
    optim::{Optimizer as DfdxOptimizer, OptimizerUpdateError, UnusedTensors},
    tensor::Gradients,
};

use super::Optimizer;
use crate::{
    Backend, Element,
    train::{Algorithm, UpdateError, parameters::without_gradient},
};

/// [`update`](Optimizer::update) on a copy of the gradients.
///
/// # Panics
/// On [`UpdateError::OtherModel`], [`UpdateError::StateMismatch`] and [`UpdateError::Config`], which dfdx's error type cannot
/// express.
impl<M: TensorCollection<E, D>, E: Element, D: Backend<E>, A: Algorithm> DfdxOptimizer<M, D, E>
    for Optimizer<E, A>
{
    fn update(
        &mut self,
        model: &mut M,
        gradients: &Gradients<E, D>,
    ) -> Result<(), OptimizerUpdateError<D::Err>> {
        let mut gradients = gradients.clone();
        let missing =
            without_gradient(model, &mut gradients).map_err(OptimizerUpdateError::DeviceError)?;
        let choices = self.choices(model);
        let ids = missing.into_iter().map(|(_, id)| id);
        let ids: Vec<_> = ids.filter(|id| !choices.is_frozen(*id)).collect();
        if !ids.is_empty() {
            return Err(OptimizerUpdateError::UnusedParams(UnusedTensors { ids }));
        }
        match Self::update(self, model, &mut gradients) {
            Ok(()) => Ok(()),
            Err(UpdateError::Device(error)) => Err(OptimizerUpdateError::DeviceError(error)),
            Err(mistake) => panic!("{mistake}"),
        }
    }
}
