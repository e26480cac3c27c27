//! The model, the optimizer and its state, between the steps of a trainer.

use super::{
    TrainError, Trainable, Trainer,
    across::{Across, OfRank},
    model::ErrOf,
};
use crate::train::{Algorithm, Optimizer, OptimizerState, ScheduleFreeConfig};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// The model with the current parameters.
    pub fn model(&mut self) -> &M {
        if std::mem::take(&mut self.has_news)
            && let Some(parameters) = &self.parameters
        {
            parameters.write(&mut self.model);
        }
        &self.model
    }

    /// The model as it was brought up to date last, the state, and the ranks if there are several.
    pub(crate) fn parts(
        &mut self,
    ) -> (
        &M,
        &OptimizerState<M::Element, A>,
        Option<OfRank<'_, M::Element>>,
    ) {
        let of_rank = self.across.as_mut().map(Across::of_rank);
        (&self.model, &self.optimizer.state, of_rank)
    }

    /// [`model`](Self::model), to change its parameters. The next step reads them again. Accumulated batches are forgotten.
    pub fn model_mut(&mut self) -> &mut M {
        self.model();
        self.read_again();
        &mut self.model
    }

    /// The model, to change its parameters, before [`read_again`](Self::read_again).
    pub(crate) fn model_to_load(&mut self) -> &mut M {
        self.model();
        &mut self.model
    }

    /// The next step reads the parameters of the model. Accumulated batches are forgotten.
    pub(crate) fn read_again(&mut self) {
        self.parameters = None;
        self.forget_trained();
    }

    /// The model with the current parameters, for good.
    pub fn into_model(self) -> M {
        self.into_parts().0
    }

    /// The model and the optimizer, for steps by hand. Of several [ranks](Self::across), the optimizer has all lists after
    /// [`gather_state`](Self::gather_state) alone, else a share of them.
    pub fn into_parts(mut self) -> (M, Optimizer<M::Element, A>) {
        self.model();
        self.optimizer.bind(&self.model);
        (self.model, self.optimizer)
    }

    /// The settings of the algorithm.
    pub fn config(&self) -> &A {
        &self.optimizer.config
    }

    /// The settings of the algorithm, for the next step.
    pub fn config_mut(&mut self) -> &mut A {
        self.choices = None;
        &mut self.optimizer.config
    }

    /// The state of the optimizer. Of several [ranks](Self::across), it has all lists after [`gather_state`](Self::gather_state) alone, else a
    /// share of them.
    pub fn state(&self) -> &OptimizerState<M::Element, A> {
        &self.optimizer.state
    }

    /// The state of the optimizer, to go on from another one.
    pub fn state_mut(&mut self) -> &mut OptimizerState<M::Element, A> {
        &mut self.optimizer.state
    }
}

impl<M: Trainable> Trainer<M, ScheduleFreeConfig> {
    /// Puts the mean of all steps into the model: the parameters to evaluate and to save. See [`ScheduleFree`](crate::train::ScheduleFree).
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn eval(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        self.model();
        self.gather_state()?;
        self.optimizer.eval(&mut self.model)?;
        self.read_again();
        Ok(())
    }

    /// Puts the parameters into the model at which the gradients of the next step are taken.
    ///
    /// # Errors
    /// [`UpdateError::StateMismatch`](crate::train::UpdateError::StateMismatch) if the state is that of another model. Nothing has changed then.
    pub fn train(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        self.model();
        self.gather_state()?;
        self.optimizer.train(&mut self.model)?;
        self.read_again();
        Ok(())
    }
}
