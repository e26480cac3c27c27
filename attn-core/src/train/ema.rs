//! Averages of the parameters of a model.

use std::collections::BTreeMap;

use dfdx::nn::TensorCollection;

use super::UpdateError;
use super::parameters::{Parameter, for_each, for_each_mut};
use crate::{
    Backend, Element,
    fused::zeros,
    kernel::{Buffer, optim::interpolate},
};

/// An exponential moving average of the parameters of a model over its training.
///
/// ```text
/// average = decay average + (1 - decay) parameter
/// ```
///
/// The first update copies the parameters. Polyak and Juditsky, "Acceleration of stochastic approximation by averaging" (1992). PyTorch:
/// `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn(decay)`.
///
/// ```
/// use attn::{dfdx::prelude::*, train::Ema};
///
/// let dev = Cpu::default();
/// let mut model: Tensor<Rank1<1>, f32, _> = dev.tensor([1.0]);
/// let mut ema = Ema::new(0.75);
/// ema.update(&model)?;
/// model = model + 1.0;
/// ema.update(&model)?;
/// ema.copy_to(&mut model)?;
/// assert_eq!(model.array(), [1.25]);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
#[doc(alias("AveragedModel", "ExponentialMovingAverage", "ema_pytorch"))]
#[derive(Clone, Debug, PartialEq)]
pub struct Ema<E> {
    /// How much of the average stays in an update: in [0, 1].
    pub decay: f64,
    /// The averages by the names of the parameters, row-major.
    pub averages: BTreeMap<String, Vec<E>>,
}

impl<E: Element> Ema<E> {
    /// Averages of no model yet.
    pub fn new(decay: f64) -> Self {
        Self {
            decay,
            averages: BTreeMap::new(),
        }
    }

    /// Takes the parameters of a model into the averages, after a step.
    ///
    /// # Errors
    /// [`UpdateError::Config`] if the decay is not in [0, 1]; [`UpdateError::StateMismatch`] if the averages are those of another model.
    /// They have not changed then.
    pub fn update<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &M,
    ) -> Result<(), UpdateError<D::Err>> {
        if !(0.0..=1.0).contains(&self.decay) {
            return Err(UpdateError::Config {
                name: "decay",
                found: self.decay,
                expected: "in 0..=1",
            });
        }
        let is_first = self.averages.is_empty();
        if !is_first {
            self.check(model)?;
        }
        for_each(model, |path, parameter| {
            let len = len_of(parameter);
            if is_first {
                let mut average = zeros(len);
                parameter.read(&mut average);
                self.averages.insert(path.name, average);
                return Ok(());
            }
            let mut numbers = Buffer::uninit(len);
            parameter.read(&mut numbers);
            if let Some(average) = self.averages.get_mut(&path.name) {
                interpolate(average, &numbers, 1.0 - self.decay);
            }
            Ok(())
        })
    }

    /// Gives a model the averages as its parameters, to evaluate or to save them. Training goes on with another copy of the model.
    ///
    /// # Errors
    /// [`UpdateError::StateMismatch`] if the averages are those of another model, or there are none yet. The model has not changed then.
    pub fn copy_to<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &mut M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.check(model)?;
        for_each_mut(model, |path, parameter| {
            if let Some(average) = self.averages.get(&path.name) {
                parameter.write(average);
            }
            Ok(())
        })
    }

    /// Whether there is an average for each parameter, of its size.
    fn check<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<(), UpdateError<D::Err>> {
        for_each(model, |path, parameter| {
            let found = self.averages.get(&path.name).map_or(0, Vec::len);
            match len_of(parameter) {
                expected if expected == found => Ok(()),
                expected => Err(UpdateError::StateMismatch {
                    name: path.name,
                    expected,
                    found,
                }),
            }
        })
    }
}

fn len_of<E: Element, D: Backend<E>>(parameter: &dyn Parameter<E, D>) -> usize {
    parameter.dims().iter().product()
}
