//! The step of the optimizer on the gradients of all batches.

use super::{
    NonFinite, SetRate, TrainError, TrainStep, Trainable, Trainer,
    across::Across,
    averaged, choose,
    finite::{Search, parts},
    model::ErrOf,
    parameters::Parameters,
    ready,
};
use crate::train::{
    Algorithm, CollectiveError, Optimizer, UpdateError,
    optimizer::{Choices, Target},
};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// One step on the accumulated batches, which are forgotten.
    pub(super) fn apply_part(&mut self) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        let losses = std::mem::take(&mut self.losses);
        let first = self.first.take();
        if losses.is_empty() {
            return Err(TrainError::NoBatch);
        }
        let applied = self.update(&losses, first);
        if let Some(parameters) = &mut self.parameters {
            parameters.forget();
        }
        self.has_news |= applied.is_ok();
        applied
    }

    /// The step on batches with these losses and weights.
    fn update(
        &mut self,
        losses: &[(f64, f64)],
        first: Option<Search<M>>,
    ) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        let count = losses.iter().map(|(_, weight)| weight).sum::<f64>();
        let loss = losses.iter().map(|(loss, weight)| loss * weight);
        let loss = loss.sum::<f64>() / count;
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        if let Some(across) = &mut self.across {
            // The state may have been gathered since the last batch.
            across.keep_own(parameters, &mut self.optimizer.state);
        }
        let choices = choose(&mut self.choices, parameters, &self.optimizer, &self.model)?;
        let step: OptimizerStep<'_, M, A> = OptimizerStep {
            parameters,
            optimizer: &mut self.optimizer,
            choices,
            across: self.across.as_mut(),
            clip: self.clip,
            schedule: self.schedule.as_deref(),
            non_finite: self.non_finite,
            ema: self.ema,
            count,
        };
        step.run(loss, first)
    }
}

/// The state that a step of the optimizer reads and changes.
struct OptimizerStep<'a, M: Trainable, A> {
    /// With gradients that are sums over batches.
    parameters: &'a mut Parameters<M::Element>,
    optimizer: &'a mut Optimizer<M::Element, A>,
    choices: &'a Choices,
    across: Option<&'a mut Across<M::Element>>,
    clip: Option<f64>,
    schedule: Option<&'a SetRate<A>>,
    non_finite: NonFinite,
    ema: Option<f64>,
    /// The weights of the batches together.
    count: f64,
}

impl<M: Trainable, A: Algorithm> OptimizerStep<'_, M, A> {
    /// The step, if the loss and all gradients are finite.
    fn run(
        mut self,
        loss: f64,
        first: Option<Search<M>>,
    ) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        self.check_settings()?;
        let mut step = self.sum_gradients(loss)?;
        if !(step.loss.is_finite() && step.grad_norm.is_finite()) {
            return self.leave_out(step, first);
        }
        step.learning_rate = self.set_rate(step.step)?;
        self.begin()?;
        self.scale_gradients(step.grad_norm);
        self.update_parameters();
        self.update_averages();
        if let Some(across) = self.across {
            across.gather(self.parameters)?;
        }
        Ok(step)
    }

    fn check_settings(&self) -> Result<(), UpdateError<ErrOf<M>>> {
        if let Some(found) = self.clip.filter(|clip| clip.is_nan() || *clip < 0.0) {
            return Err(UpdateError::Config {
                name: "clip",
                found,
                expected: "0 or more",
            });
        }
        self.ema.map_or(Ok(()), averaged::check)
    }

    /// Adds up the gradients of each parameter, of all ranks, and takes their norm. `loss` is that of this rank.
    fn sum_gradients(&mut self, mut loss: f64) -> Result<TrainStep, CollectiveError> {
        let mut squares = 0.0;
        if let Some(across) = &mut self.across {
            across.reduce(self.parameters, self.count)?;
            [squares, loss] = across.sum([self.parameters.squared_norm(), loss])?;
        } else {
            self.parameters.merge();
            squares += self.parameters.squared_norm();
        }
        Ok(TrainStep {
            step: self.optimizer.state.step.saturating_add(1),
            loss,
            grad_norm: squares.sqrt() / self.count,
            learning_rate: None,
            skipped: false,
        })
    }

    /// The end of a step that is not finite: nothing has changed.
    fn leave_out(
        mut self,
        step: TrainStep,
        first: Option<Search<M>>,
    ) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        if let Some(across) = &mut self.across {
            across.forget_errors();
        }
        if self.non_finite == NonFinite::Skip {
            return Ok(TrainStep {
                skipped: true,
                ..step
            });
        }
        let mut parameter = self.parameters.first_non_finite();
        if let Some(across) = &mut self.across {
            let place = across.least(parameter.unwrap_or(usize::MAX))?;
            parameter = Some(place);
        }
        let parameter = parameter.and_then(|place| self.parameters.all.get(place));
        let (first, search) = parts(first.unwrap_or(Ok(None)));
        Err(TrainError::NotFinite {
            step: step.step,
            loss: step.loss,
            grad_norm: step.grad_norm,
            parameter: parameter.map(|of| of.name.clone()),
            first,
            search,
        })
    }

    /// Sets the learning rate of a step, and returns it.
    fn set_rate(&mut self, step: u64) -> Result<Option<f64>, UpdateError<ErrOf<M>>> {
        if let Some(set) = self.schedule {
            let set = set(&mut self.optimizer.config, step);
            set.map_err(UpdateError::<ErrOf<M>>::of_setting)?;
        }
        Ok(self.optimizer.config.lr(step))
    }

    /// Begins the step of the optimizer.
    fn begin(&mut self) -> Result<(), UpdateError<ErrOf<M>>> {
        self.optimizer.check_settings::<ErrOf<M>>(self.choices)?;
        let own = self.across.as_ref().and_then(|across| across.own());
        self.optimizer.begin(self.choices, own)
    }

    /// Divides the gradients by the weights of the batches, and clips them. `norm` is that of the quotients.
    fn scale_gradients(&mut self, norm: f64) {
        let clipped = self.clip.filter(|clip| norm > *clip);
        let factor = clipped.map_or(1.0, |clip| clip / norm) / self.count;
        if factor != 1.0 {
            self.parameters.scale(factor);
        }
    }

    /// Updates what this rank has of the parameters.
    fn update_parameters(&mut self) {
        let choices = self.choices;
        let all = self.parameters.all_mut().into_iter();
        let targets = all.map(|(of, numbers, gradient)| Target {
            of: &choices.all()[of.index],
            choice: choices.of(of.id),
            start: of.own.start,
            numbers,
            gradient,
        });
        self.optimizer.update_all(targets.collect());
    }

    fn update_averages(&mut self) {
        let state = &mut self.optimizer.state;
        match self.ema {
            Some(decay) => averaged::update(self.parameters, state, decay),
            None => averaged::forget(state),
        }
    }
}
