//! The gradients of a batch, which are added to those of the step.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use dfdx::tensor::{SplitTape, Tensor};

use super::{
    NonFinite, TrainBatch, TrainError, Trainable, Trainer,
    across::{Exchange, Share},
    choose,
    model::{ErrOf, StepTape},
    number_of, ready,
};
use crate::{
    fused::{Derivative, Operation, StepSeeds},
    random::Part,
    train::Algorithm,
};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// Computes the loss of a batch, and adds its gradients to those of the step. Behind the last batch of a step, gradients are exchanged as
    /// soon as they are finished.
    pub(super) fn accumulate_part<B: TrainBatch<M>>(
        &mut self,
        batch: B,
        is_last: bool,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        self.check_share()?;
        self.join()?;
        let share = self.share_of(&batch)?;
        let weight = self.weight_of(share.targets);
        if share.factor == 0.0 {
            self.losses.push((0.0, weight));
            return Ok(f64::NAN);
        }
        let again = batch.clone();
        let (loss, derivative) = self.run_forward(batch, share.part)?;
        self.check_loss(loss, share.targets)?;
        if let Some(derivative) = derivative {
            self.run_backward(derivative, (share.factor, weight), is_last)?;
        }
        let number = self.losses.len() as u32;
        self.losses.push((share.factor * loss, weight));
        if !loss.is_finite() && self.first.is_none() && self.non_finite == NonFinite::Stop {
            self.first = Some(self.first_non_finite(again, number));
        }
        Ok(loss)
    }

    /// The part of this rank in a batch. It makes the parameters ready, and finds out which of them are trained.
    fn share_of<B: TrainBatch<M>>(&mut self, batch: &B) -> Result<Share, TrainError<ErrOf<M>>> {
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        choose(&mut self.choices, parameters, &self.optimizer, &self.model)?;
        let Some(across) = &mut self.across else {
            return Ok(Share::all(batch.targets()));
        };
        across.keep_own(parameters, &mut self.optimizer.state);
        Ok(across.share(batch.targets(), batch.rows())?)
    }

    /// The weight of the next batch, which has so many targets, in the mean of the losses of the step.
    fn weight_of(&mut self, targets: usize) -> f64 {
        if self.losses.is_empty() {
            self.first_targets = targets;
        }
        // The weight of a single batch, and of equal ones, is exactly 1.
        targets.max(1) as f64 / self.first_targets.max(1) as f64
    }

    /// The loss of the part of a batch, and its derivative.
    fn run_forward<B: TrainBatch<M>>(
        &mut self,
        batch: B,
        part: Part,
    ) -> Result<(f64, Option<Derivative<M::Element>>), TrainError<ErrOf<M>>> {
        let seeds = StepSeeds::new(self.seed, self.next_step(), self.losses.len() as u32);
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        let derived = Rc::new(RefCell::new(None));
        let operation = Operation::of_step(Arc::clone(&parameters.arena), self.dtype).deriving(
            Rc::clone(&derived),
            seeds.of_part(part),
            Arc::clone(&parameters.trained),
        );
        let loss: Tensor<_, _, _, StepTape> = batch.loss(&self.model, operation)?;
        let loss = number_of(&loss.split_tape().0);
        Ok((loss, derived.take()))
    }

    /// An error if the loss is a mean over no targets. `targets` counts those of all ranks.
    fn check_loss(&mut self, loss: f64, targets: usize) -> Result<(), TrainError<ErrOf<M>>> {
        let mut has_no_loss = targets == 0 && loss.is_nan();
        if let (0, Some(across)) = (targets, &mut self.across) {
            // The parts of the other ranks may have a number, and no rank goes on without them.
            let [count] = across.sum([f64::from(u8::from(has_no_loss))])?;
            has_no_loss = count > 0.0;
        }
        match has_no_loss && self.non_finite == NonFinite::Stop {
            true => Err(TrainError::EmptyBatch {
                step: self.next_step(),
            }),
            false => Ok(()),
        }
    }

    /// Adds the gradients of a batch. Its loss is that of all ranks times a factor, and has this weight in the step.
    fn run_backward(
        &mut self,
        derivative: Derivative<M::Element>,
        (factor, weight): (f64, f64),
        is_last: bool,
    ) -> Result<(), TrainError<ErrOf<M>>> {
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        let of_step = self.losses.iter().map(|(_, weight)| weight).sum::<f64>() + weight;
        let weight = factor * weight;
        match self.across.take_if(|_| is_last) {
            None => parameters.add(derivative, weight),
            Some(mut across) => {
                across.begin_step(of_step);
                let exchange = |inputs| Exchange { across, inputs };
                let exchange = parameters.add_watched(derivative, weight, exchange);
                self.across = Some(exchange.across);
            }
        }
        Ok(())
    }
}
