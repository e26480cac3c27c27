//! The moving average of the parameters of a trainer.
//!
//! It is in the lists of the optimizer's state, so a checkpoint has it.

use std::sync::Arc;

use super::{TrainBatch, TrainError, Trainable, Trainer, model::ErrOf, parameters::Parameters};
use crate::{
    Element,
    kernel::optim::interpolate,
    train::{Algorithm, FitFailure, List, OptimizerState, UpdateError},
};

/// The name of the list of a parameter's averages.
pub(crate) const AVERAGE: &str = "ema";

fn name_of(parameter: &str) -> String {
    format!("{parameter}.{AVERAGE}")
}

/// Checks, while the program is compiled, that no list of an algorithm has the name of the averages.
pub(super) const fn check_lists(mut lists: &[List]) {
    while let [list, rest @ ..] = lists {
        assert!(
            !matches!(list.name.as_bytes(), b"ema"),
            "`ema` is the name of the averages of a trainer: no list of an `Algorithm` can have it"
        );
        lists = rest;
    }
}

/// Checks the share of the average that stays in a step.
pub(super) fn check<Dev>(decay: f64) -> Result<(), UpdateError<Dev>> {
    match (0.0..=1.0).contains(&decay) {
        true => Ok(()),
        false => Err(UpdateError::Config {
            name: "ema",
            found: decay,
            expected: "in 0..=1",
        }),
    }
}

/// Takes the numbers that this rank updates into their averages, after a step. The first time, they are copied.
pub(super) fn update<E: Element, A>(
    parameters: &Parameters<E>,
    state: &mut OptimizerState<E, A>,
    decay: f64,
) {
    let Some(arena) = parameters.arena.get() else {
        return;
    };
    for of in parameters.all.iter().filter(|of| of.has_own()) {
        let numbers = &arena[of.own_range()];
        let name = name_of(&of.name);
        match state.lists.get_mut(&name) {
            Some(average) if average.len() == numbers.len() => {
                interpolate(average, numbers, 1.0 - decay);
            }
            _ => {
                state.lists.insert(name, numbers.to_vec());
            }
        }
    }
}

/// Drops the averages, which would stay as they are.
pub(super) fn forget<E: Element, A>(state: &mut OptimizerState<E, A>) {
    let is_average = |name: &str| {
        name.rsplit_once('.')
            .is_some_and(|(_, list)| list == AVERAGE)
    };
    state.lists.retain(|name, _| !is_average(name));
}

/// A [`Trainer`] with the [averages](Trainer::ema) of its parameters in their place: to evaluate them, and to save the model. It goes on with
/// its own when this is dropped.
#[derive(Debug)]
#[must_use = "the averages are there while this lives"]
pub struct Averaged<'a, M: Trainable, A> {
    trainer: &'a mut Trainer<M, A>,
}

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// Keeps an exponential moving average of the parameters: in each step, `average = decay average + (1 - decay) parameter`. The first step
    /// copies the parameters. `decay` is in 0..=1; otherwise the next step returns [`UpdateError::Config`].
    ///
    /// [`averaged`](Self::averaged) evaluates and saves them. A checkpoint has them beside the parameters, and training goes on from it with the
    /// same bits; if it has none, the next step begins them. A trainer that keeps no averages drops them in its next step.
    ///
    /// ```
    /// use attn::{prelude::*, train::AdamWConfig};
    ///
    /// model! {
    ///     struct Net<d = 2>;
    ///     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    ///     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(pow(forward(x) - 1, 2)) }
    /// }
    ///
    /// let dev = Cpu::default();
    /// let mut trainer = dev.build_module::<Net, f32>().trainer(AdamWConfig { lr: 0.1, ..Default::default() }).ema(0.9);
    /// let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
    /// for _ in 0..20 {
    ///     trainer.step(x.clone())?;
    /// }
    /// let loss = trainer.averaged()?.evaluate(x.clone())?;
    /// assert_ne!(loss, trainer.evaluate(x)?);
    /// let folder = tempfile::tempdir()?;
    /// attn::checkpoint::save(trainer.averaged()?.model(), folder.path().join("averaged.safetensors"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// PyTorch: `AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))` with `update_parameters` after each step.
    #[doc(alias("AveragedModel", "ExponentialMovingAverage", "ema_pytorch"))]
    pub fn ema(mut self, decay: f64) -> Self {
        self.ema = Some(decay);
        self
    }

    /// The trainer with the [averages](Self::ema) as its parameters, while the result lives. Before the first step these are the parameters.
    ///
    /// Of several [ranks](Self::across), all call it, and an error of one ends all.
    ///
    /// # Errors
    /// [`TrainError::NoAverage`] if the trainer keeps none; [`TrainError::Ranks`] if a rank has failed.
    pub fn averaged(&mut self) -> Result<Averaged<'_, M, A>, TrainError<ErrOf<M>>> {
        let gathered = self.gather_averages();
        self.tell_ranks(&gathered);
        gathered?;
        self.swap_averages();
        Ok(Averaged { trainer: self })
    }

    fn gather_averages(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        if self.ema.is_none() {
            return Err(TrainError::NoAverage);
        }
        self.gather_state()?;
        super::ready(&mut self.parameters, &mut self.model)?;
        Ok(())
    }
}

impl<M: Trainable, A> Trainer<M, A> {
    /// Exchanges the parameters and their averages.
    fn swap_averages(&mut self) {
        let Some(parameters) = &mut self.parameters else {
            return;
        };
        let arena = Arc::get_mut(&mut parameters.arena).and_then(|arena| arena.get_mut());
        let Some(arena) = arena else {
            return;
        };
        for of in &parameters.all {
            let average = self.optimizer.state.lists.get_mut(&name_of(&of.name));
            let numbers = &mut arena[of.range.clone()];
            if let Some(average) = average.filter(|average| average.len() == numbers.len()) {
                numbers.swap_with_slice(average);
            }
        }
        self.has_news = true;
    }
}

impl<M: Trainable, A: Algorithm> Averaged<'_, M, A> {
    /// [`Trainer::evaluate`] with the averages.
    ///
    /// # Errors
    /// The errors of [`Trainer::evaluate`].
    pub fn evaluate<B: TrainBatch<M>>(&mut self, batch: B) -> Result<f64, TrainError<ErrOf<M>>> {
        self.trainer.evaluate(batch)
    }

    /// [`Trainer::evaluate_all`] with the averages.
    ///
    /// # Errors
    /// The errors of [`Trainer::evaluate_all`].
    pub fn evaluate_all<B: TrainBatch<M>>(
        &mut self,
        batches: impl IntoIterator<Item = B>,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        self.trainer.evaluate_all(batches)
    }

    /// [`Trainer::try_evaluate_all`] with the averages.
    ///
    /// # Errors
    /// The errors of [`Trainer::try_evaluate_all`].
    pub fn try_evaluate_all<B, Failure>(
        &mut self,
        batches: impl IntoIterator<Item = Result<B, Failure>>,
    ) -> Result<f64, FitFailure>
    where
        B: TrainBatch<M>,
        Failure: Into<Box<dyn std::error::Error + Send + Sync>>,
        TrainError<ErrOf<M>>: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.trainer.try_evaluate_all(batches)
    }

    /// The model with the averages.
    pub fn model(&mut self) -> &M {
        self.trainer.model()
    }
}

impl<M: Trainable, A> Drop for Averaged<'_, M, A> {
    fn drop(&mut self) {
        self.trainer.swap_averages();
    }
}

#[cfg(test)]
mod tests {
    use super::{AVERAGE, List, check_lists};

    #[test]
    #[should_panic = "`ema` is the name of the averages of a trainer"]
    fn the_name_of_the_averages_is_no_list_of_an_algorithm() {
        check_lists(&[List::of_elements("mean"), List::of_elements(AVERAGE)]);
    }
}
