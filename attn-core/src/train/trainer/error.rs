//! What a step of a trainer returns.

use std::fmt::Display;

use crate::{
    Error,
    train::{CollectiveError, UpdateError},
    values,
};

/// A step of a [`Trainer`](super::Trainer).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainStep {
    /// The number of the step, from 1; of a skipped step, the number that the next one has again.
    pub step: u64,
    /// The loss, before the parameters changed. Of several batches, the mean, in which each [counts](super::Trainer::accumulate) by its
    /// targets.
    pub loss: f64,
    /// The norm of all gradients as one vector, before clipping.
    pub grad_norm: f64,
    /// The learning rate, if the algorithm has one.
    pub learning_rate: Option<f64>,
    /// Whether the parameters are as before, because the loss or a gradient is not finite: see [`NonFinite::Skip`].
    pub skipped: bool,
}

/// What a [`Trainer`](super::Trainer) does if the loss or a gradient is infinite or NaN. The parameters do not change in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// The step is an error.
    #[default]
    Stop,
    /// The step is left out, as `torch.amp.GradScaler` does. [`FitState::skipped`](crate::train::FitState::skipped) counts such steps.
    Skip,
}

/// Why a [`Trainer`](super::Trainer) took no step. Parameters, state and step count are as before, except where [ranks](Self::Ranks) end:
/// they may have taken a part of it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError<Dev> {
    /// The model does not accept the batch.
    #[error(transparent)]
    Call(Error<Dev>),

    /// A setting, or the state, does not fit.
    #[error(transparent)]
    Update(UpdateError<Dev>),

    /// The loss or a gradient is infinite or NaN.
    #[error(
        "step {step}: the loss is {loss}, and the norm of the gradients {grad_norm}{}{}{}",
        of_gradient(parameter.as_deref()),
        of_operation(first.as_ref(), search.as_deref()),
        advice(*step, first.as_ref())
    )]
    NotFinite {
        /// The step.
        step: u64,
        /// The loss.
        loss: f64,
        /// The norm of all gradients as one vector.
        grad_norm: f64,
        /// The first parameter whose gradient is not finite, if there is one.
        parameter: Option<String>,
        /// The input of the batch that has NaN, or else the first operation whose result is not finite, or if all results are finite, the first whose
        /// gradient is not. `None` if there is none: the gradient of a parameter is not finite by its own operation, as a sum that overflows. Of
        /// [accumulated](super::Trainer::accumulate) batches, that of the first with such a loss. The search keeps the results of all operations,
        /// logits among them; [`NonFinite::Skip`] leaves it out.
        first: Option<values::NonFinite>,
        /// Why the operation could not be looked for, as [`Error::TooLarge`] if there is too little memory.
        search: Option<Box<Error<Dev>>>,
    },

    /// The loss of a batch is NaN because it has no targets. Nothing has changed.
    #[error(
        "step {step}: the batch has no targets, so the mean of their losses is NaN: it is empty, or `ignore_index` leaves all of them out"
    )]
    EmptyBatch {
        /// The step.
        step: u64,
    },

    /// There is nothing to evaluate.
    #[error(
        "an evaluation without a batch that has targets: there are no batches, as of an iterator that has given its batches before, or `ignore_index` leaves out all targets"
    )]
    NoTargets,

    /// The trainer keeps no averages.
    #[error("`averaged` without averages: `.ema(decay)` of the trainer keeps them")]
    NoAverage,
    /// Another [rank](super::Trainer::across) has failed, or this one is not set up as it is. The run of this rank ends here.
    #[error("{0}")]
    Ranks(CollectiveError),

    /// The optimizer's lists are those of one of several [ranks](super::Trainer::across), which the trainer has left.
    #[error(
        "the optimizer has a share of its state, as a rank of a run that it has left while others of it had ended: load a checkpoint"
    )]
    Share,

    /// There is no batch since the last step.
    #[error("`apply` without a batch: call `accumulate` before it")]
    NoBatch,
}

fn of_gradient(parameter: Option<&str>) -> impl Display {
    parameter.map_or_else(String::new, |parameter| {
        format!(", where that of `{parameter}` is the first that is not finite")
    })
}

fn of_operation<Dev>(first: Option<&values::NonFinite>, search: Option<&Error<Dev>>) -> String
where
    Error<Dev>: Display,
{
    match (first, search) {
        (Some(first), _) => format!("; {first}"),
        (None, Some(error)) => format!("; the first operation cannot be looked for: {error}"),
        (None, None) => String::new(),
    }
}

/// The advice at the end of the message. At the first step, and where an input has NaN, the learning rate is not the reason.
fn advice(step: u64, first: Option<&values::NonFinite>) -> &'static str {
    let is_input = first.is_some_and(|first| first.pass == values::Pass::Input);
    match step <= 1 || is_input {
        true => "",
        false => ": training has diverged; a smaller learning rate may help",
    }
}

impl<Dev> From<Error<Dev>> for TrainError<Dev> {
    fn from(error: Error<Dev>) -> Self {
        Self::Call(error)
    }
}

impl<Dev> From<CollectiveError> for TrainError<Dev> {
    fn from(error: CollectiveError) -> Self {
        Self::Ranks(error)
    }
}

impl<Dev> From<UpdateError<Dev>> for TrainError<Dev> {
    fn from(error: UpdateError<Dev>) -> Self {
        Self::Update(error)
    }
}
