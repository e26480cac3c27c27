//! The loop around training steps.

mod ranks;
mod run;

use std::{ops::ControlFlow, time::Duration};

pub use run::{Fit, FitFailure};

use super::{
    Algorithm, Collective, CollectiveError, TrainBatch, TrainError, TrainStep, Trainable, Trainer,
};

/// What [`fit`] trains: a step, and if there are any, an evaluation and a checkpoint.
///
/// A closure from a batch to a [`StepReport`] is one, and so is a [`Trainer`], both without evaluations and checkpoints.
pub trait Learner<Batch> {
    /// The error of all of these.
    type Error;

    /// Takes a training step.
    ///
    /// # Errors
    /// Any error ends the loop.
    fn step(&mut self, batch: Batch) -> Result<StepReport, Self::Error>;

    /// The validation loss, if there is one.
    ///
    /// # Errors
    /// Any error ends the loop.
    fn evaluate(&mut self) -> Result<Option<f64>, Self::Error> {
        Ok(None)
    }

    /// Other numbers that are measured with each evaluation, such as the share of right answers, by name.
    ///
    /// # Errors
    /// Any error ends the loop.
    fn measure(&mut self) -> Result<Vec<(&'static str, f64)>, Self::Error> {
        Ok(Vec::new())
    }

    /// Saves a checkpoint after `state.step` steps, with the state, from which a resumed run goes on.
    /// [`measured`](FitState::measured) is what decides about the best one.
    ///
    /// # Errors
    /// Any error ends the loop.
    fn save(&mut self, state: &FitState) -> Result<(), Self::Error> {
        let _ = state;
        Ok(())
    }

    /// The number of steps that its optimizer has taken, if that is known: [`fit`] compares it with the state that it goes on from.
    fn steps(&self) -> Option<u64> {
        None
    }

    /// The ranks that train together, if there are several.
    ///
    /// [`fit`] tells them of an error of a batch, of an observer, of an evaluation or of a checkpoint, and so ends them. Of an error of a
    /// [`step`](Self::step), which all ranks may have, this learner tells them, as the [`Trainer`] in it does.
    fn collective(&mut self) -> Option<&mut dyn Collective> {
        None
    }

    /// The words of an error that the other [ranks](Self::collective) are told.
    fn reason(&self, error: &Self::Error) -> String {
        let _ = error;
        "its run of `fit` has ended with an error".to_owned()
    }
}

impl<Batch, Error, F: FnMut(Batch) -> Result<StepReport, Error>> Learner<Batch> for F {
    type Error = Error;

    fn step(&mut self, batch: Batch) -> Result<StepReport, Error> {
        self(batch)
    }
}

/// Steps alone: what evaluates and saves has the trainer as a field.
impl<M: Trainable, A: Algorithm, Batch: TrainBatch<M>> Learner<Batch> for Trainer<M, A> {
    type Error = TrainError<<M::Device as dfdx::tensor::HasErr>::Err>;

    fn step(&mut self, batch: Batch) -> Result<StepReport, Self::Error> {
        Ok(Trainer::step(self, batch)?.into())
    }

    fn steps(&self) -> Option<u64> {
        Some(self.state().step)
    }

    fn collective(&mut self) -> Option<&mut dyn Collective> {
        Trainer::collective(self)
    }

    fn reason(&self, error: &Self::Error) -> String {
        error.to_string()
    }
}

/// The results of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepReport {
    /// The training loss.
    pub loss: f64,
    /// The norm of all gradients before clipping.
    pub grad_norm: f64,
    /// The learning rate, if it is known. A skipped step of a [`Trainer`] has none.
    pub learning_rate: Option<f64>,
    /// Whether nothing was learned, because the loss or a gradient is not finite, and this is no error: see
    /// [`NonFinite::Skip`](super::NonFinite::Skip).
    pub skipped: bool,
}

impl From<TrainStep> for StepReport {
    fn from(step: TrainStep) -> Self {
        Self {
            loss: step.loss,
            grad_norm: step.grad_norm,
            learning_rate: step.learning_rate,
            skipped: step.skipped,
        }
    }
}

/// How long [`fit`] trains, and what it does between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FitConfig {
    /// The number of steps of the whole run, those before it was resumed too.
    pub steps: u64,
    /// The number of steps between two evaluations. The loop also evaluates before the first step and after the last one. With 0 there are
    /// only these two.
    pub evaluate_every: u64,
    /// The number of steps between two checkpoints. With 0 there is one after each evaluation but the one before the first step.
    ///
    /// Whatever the number, a checkpoint is saved after a new lowest validation loss, so that the best one is there, and after the last step,
    /// of a run that was stopped too.
    pub save_every: u64,
    /// Training ends after this number of evaluations in a row without a new lowest loss. 0 counts as 1, and `None` never ends it.
    pub patience: Option<u64>,
}

impl FitConfig {
    /// Whether the loop evaluates after this step.
    fn evaluates(&self, step: u64) -> bool {
        step == self.steps || is_due(step, self.evaluate_every)
    }

    /// Whether a checkpoint is saved after the last step, which was evaluated or not.
    fn saves(&self, state: &FitState, is_evaluated: bool) -> bool {
        let in_turn = match self.save_every {
            0 => is_evaluated,
            interval => is_due(state.step, interval) || state.is_best(),
        };
        in_turn || state.step == self.steps
    }
}

fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step.is_multiple_of(interval)
}

/// The state of the loop. A resumed run goes on from that of its checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "safetensors", derive(serde::Serialize, serde::Deserialize))]
pub struct FitState {
    /// The number of steps so far.
    pub step: u64,
    /// The training loss, smoothed: a tenth of the last one, and nine tenths of what it was before. `None` before the first step.
    pub loss: Option<f64>,
    /// The steps with an evaluation, and the validation losses there.
    pub evaluations: Vec<(u64, f64)>,
    /// The number of steps in a row, up to the last one, that were [skipped](StepReport::skipped): nothing is learned while it grows. A
    /// run may end at some number, by `stop_when(|state| state.skipped == 100)`.
    #[cfg_attr(feature = "safetensors", serde(default))]
    pub skipped: u64,
}

impl FitState {
    /// The validation loss after the last step, if it was measured there.
    pub fn measured(&self) -> Option<f64> {
        let last = self.evaluations.last();
        last.filter(|(step, _)| *step == self.step)
            .map(|(_, loss)| *loss)
    }

    /// The step with the lowest validation loss, and that loss. Of equal ones it is the first.
    pub fn best(&self) -> Option<(u64, f64)> {
        let lowest = self.evaluations.iter();
        lowest.copied().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether the validation loss was measured after the last step, and is the lowest so far.
    fn is_best(&self) -> bool {
        self.measured().is_some() && self.best().is_some_and(|(step, _)| step == self.step)
    }

    /// The number of evaluations after the best one.
    fn stale(&self) -> u64 {
        let after = |(best, _)| {
            let later = self.evaluations.iter().filter(|(step, _)| *step > best);
            later.count() as u64
        };
        self.best().map_or(0, after)
    }

    fn record(&mut self, report: StepReport) {
        if report.skipped {
            self.skipped += 1;
        } else {
            let before = self.loss.unwrap_or(report.loss);
            self.loss = Some(0.9 * before + 0.1 * report.loss);
            self.skipped = 0;
        }
        self.step += 1;
    }
}

/// What has just happened in [`fit`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FitEvent {
    /// The run begins, or goes on, with these settings.
    Started(FitConfig),
    /// A step.
    Step(StepReport),
    /// An evaluation, with the validation loss.
    Evaluated(f64),
    /// Another number that was [measured](Learner::measure), with its name.
    Measured(&'static str, f64),
    /// [`Learner::save`] is about to be called: what has to be on the disk before the checkpoint is written now.
    Saving,
    /// [`Learner::save`] has returned: a checkpoint, if the learner saves any.
    Saved,
    /// The run ends without an error, and had several ranks: what one of them did. There is one for each, in their order.
    Rank {
        /// Its number.
        rank: usize,
        /// The bytes that it sent to the others, in this run of the program.
        bytes_sent: u64,
        /// The [time](Collective::waited) in which it had nothing to do but to wait for the others, in this run of the program.
        waited: Duration,
    },
}

/// Why [`fit`] ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitEnd {
    /// All steps are done.
    Done,
    /// The observer broke off.
    Stopped,
    /// The validation loss did not fall any more: [`FitConfig::patience`].
    NotBetter,
    /// There are no more batches.
    NoMoreBatches,
}

/// The errors of [`fit`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FitError<Error> {
    /// A number is infinite or NaN. The last checkpoint is from before. A step of a [`Trainer`](super::Trainer) is its own
    /// [error](super::TrainError::NotFinite) then, which is [`Failed`](Self::Failed).
    #[error(
        "the {which} is {found} after step {step}: training has diverged; a smaller learning rate may help"
    )]
    Diverged {
        /// `training loss`, `norm of the gradients` or `validation loss`.
        which: &'static str,
        /// The step.
        step: u64,
        /// The number.
        found: f64,
    },

    /// The learner or the observer.
    #[error(transparent)]
    Failed(Error),

    /// The next batch.
    #[error(transparent)]
    Batch(Box<dyn std::error::Error + Send + Sync>),

    /// The state is that of a run with steps, and the optimizer has taken none: they are not of the same checkpoint. Nothing has changed.
    #[error("{}", of_other_state(*state, *optimizer))]
    OtherState {
        /// The step of the state.
        state: u64,
        /// The number of steps of the optimizer.
        optimizer: u64,
    },

    /// A rank has failed, or its settings differ.
    #[error(transparent)]
    Ranks(#[from] CollectiveError),

    /// A rank has fewer batches than another one.
    #[error(
        "rank {rank} has no more batches after step {step}, but others have: give all ranks the same number of batches"
    )]
    Batches {
        /// The first such rank.
        rank: usize,
        /// The step.
        step: u64,
    },
}

/// Trains: steps, evaluations, checkpoints, for as long as `config` says.
///
/// `state` is the beginning: new, or that of the checkpoint from which a run is resumed; then the batches go on from its step, too.
/// `observe` is told everything that happens: it draws a progress bar, writes metrics, and may end the run, as after Ctrl-C, with
/// [`ControlFlow::Break`]. A run that ends this way saves a checkpoint first.
///
/// A state of a run with steps needs the optimizer that took them: with one that has taken none it is [`FitError::OtherState`].
///
/// Of several [ranks](Trainer::across), each calls this with its part of the batches. All end after the same step, if one of them breaks off, and save
/// together. An error of one ends all of them. The numbers of evaluations are those of rank 0. Ranks with another `config` or `state` than rank 0 are an error before the first step.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Linear, train::{AdamW, FitConfig, FitEnd, FitState, StepReport, clip_grad_norm, fit}};
/// use std::ops::ControlFlow;
///
/// let dev = Cpu::default();
/// let mut model = dev.build_module::<Linear<4, 1>, f32>();
/// let mut optimizer = AdamW::new(Default::default());
/// let mut gradients = Some(model.alloc_grads());
/// let mut step = |(x, y): (Tensor<Rank2<8, 4>, f32, Cpu>, Tensor<Rank2<8, 1>, f32, Cpu>)| {
///     let loss = mse_loss(model.forward_mut(x.traced(gradients.take().unwrap())), y);
///     let value = loss.array();
///     let mut new = loss.backward();
///     let norm = clip_grad_norm(&model, &mut new, 1.0)?;
///     optimizer.update(&mut model, &mut new)?;
///     model.zero_grads(&mut new);
///     gradients = Some(new);
///     Ok::<_, attn::train::UpdateError<CpuError>>(StepReport { loss: value.into(), grad_norm: norm, ..Default::default() })
/// };
/// let batches = std::iter::repeat_with(|| Ok::<_, std::convert::Infallible>((dev.sample_normal(), dev.ones())));
/// let config = FitConfig { steps: 20, ..Default::default() };
/// let mut state = FitState::default();
/// let end = fit(&mut step, batches, config, &mut state, |state, _| match state.step {
///     10 => Ok(ControlFlow::Break(())),
///     _ => Ok(ControlFlow::Continue(())),
/// })?;
/// assert_eq!((end, state.step), (FitEnd::Stopped, 10));
/// # Ok::<(), attn::train::FitError<attn::train::UpdateError<CpuError>>>(())
/// ```
///
/// A [`Trainer`] is a learner, without evaluations and checkpoints. [`trainer.fit(config)`](Trainer::fit) is this loop with these and other
/// parts.
///
/// ```
/// use attn::{batches::{RandomBlocks, TokenBatch}, prelude::*, train::{AdamWConfig, FitConfig, FitEvent, FitState, fit}};
/// use std::ops::ControlFlow;
///
/// model! {
///     struct Bigrams<vocab = 10, d = 8>;
///     fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
///         linear::<vocab>(embedding::<vocab, d>(ids))
///     }
///     fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
///         cross_entropy(forward(ids), targets)
///     }
/// }
///
/// let dev = Cpu::default();
/// let text: Vec<usize> = (0..1000).map(|i| i % 10).collect();
/// let blocks = RandomBlocks::new(&text, (4, 16), 1337, &dev)?;
/// let batches = blocks.map(|batch| batch.map(|TokenBatch { ids, targets }| (ids, targets)));
/// let mut trainer = dev.build_module::<Bigrams, f32>().trainer(AdamWConfig { lr: 0.05, ..Default::default() });
/// let config = FitConfig { steps: 60, ..Default::default() };
/// let mut state = FitState::default();
/// fit(&mut trainer, batches, config, &mut state, |state, event| {
///     if let FitEvent::Step(step) = event {
///         println!("step {}: {}", state.step, step.loss);
///     }
///     Ok(ControlFlow::Continue(()))
/// })?;
/// assert!(state.loss.unwrap() < 10f64.ln() / 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// PyTorch: `Trainer.fit` of Lightning, with `EarlyStopping` and `ModelCheckpoint`; nanoGPT: `train.py`.
///
/// # Errors
/// [`FitError`]: the state is that of the last step that was taken.
#[doc(alias("Trainer", "EarlyStopping", "ModelCheckpoint"))]
pub fn fit<L, Batch, Failure>(
    learner: &mut L,
    batches: impl IntoIterator<Item = Result<Batch, Failure>>,
    config: FitConfig,
    state: &mut FitState,
    observe: impl FnMut(&FitState, FitEvent) -> Result<ControlFlow<()>, L::Error>,
) -> Result<FitEnd, FitError<L::Error>>
where
    L: Learner<Batch>,
    Failure: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut in_step = false;
    let ended = run_steps(learner, batches, config, state, observe, &mut in_step);
    let reason = match &ended {
        Err(FitError::Failed(error)) if !in_step => Some(learner.reason(error)),
        Err(FitError::Batch(error)) => Some(error.to_string()),
        Err(FitError::OtherState { state, optimizer }) => Some(of_other_state(*state, *optimizer)),
        _ => None,
    };
    if let (Some(reason), Some(ranks)) = (reason, learner.collective()) {
        ranks.fail(&reason);
    }
    ended
}

/// The loop of [`fit`]. It says whether it is within a step of the learner.
fn run_steps<L, Batch, Failure>(
    learner: &mut L,
    batches: impl IntoIterator<Item = Result<Batch, Failure>>,
    config: FitConfig,
    state: &mut FitState,
    mut observe: impl FnMut(&FitState, FitEvent) -> Result<ControlFlow<()>, L::Error>,
    in_step: &mut bool,
) -> Result<FitEnd, FitError<L::Error>>
where
    L: Learner<Batch>,
    Failure: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut batches = batches.into_iter();
    ranks::check(learner.collective(), config, state)?;
    check_state(learner.steps(), state)?;
    let before = ranks::Done::of(learner.collective());
    if start::<L, Batch>(learner, config, state, &mut observe)?.is_break() {
        return Ok(FitEnd::Stopped);
    }
    // The step of the last checkpoint: a run that goes on comes from one.
    let mut saved = state.step;
    let mut is_stopped = false;
    let end = loop {
        // Before a batch is drawn, which no checkpoint would know of.
        if let Some(end) = end_before_batch::<L, Batch>(learner, config, state, is_stopped)? {
            break end;
        }
        let batch = batches.next();
        ranks::check_batch(learner.collective(), batch.is_some(), state.step)?;
        let Some(batch) = batch else {
            break FitEnd::NoMoreBatches;
        };
        let batch = batch.map_err(|error| FitError::Batch(error.into()))?;
        let report = take_step(learner, batch, state.step + 1, in_step)?;
        state.record(report);
        let flow = observe(state, FitEvent::Step(report)).map_err(FitError::Failed)?;
        is_stopped = flow.is_break();
        let evaluates = config.evaluates(state.step);
        if evaluates {
            is_stopped |= evaluate::<L, Batch>(learner, state, &mut observe)?.is_break();
        }
        if config.saves(state, evaluates) {
            saved = state.step;
            is_stopped |= save::<L, Batch>(learner, state, &mut observe)?.is_break();
        }
    };
    // A stop may have saved without an evaluation.
    let is_measured = state.step == 0 || config.evaluates(state.step) || state.measured().is_some();
    if end == FitEnd::NoMoreBatches && !is_measured {
        let _ = evaluate::<L, Batch>(learner, state, &mut observe)?;
        let _ = save::<L, Batch>(learner, state, &mut observe)?;
    } else if saved != state.step {
        let _ = save::<L, Batch>(learner, state, &mut observe)?;
    }
    for event in ranks::events(learner.collective(), before)? {
        let _ = observe(state, event).map_err(FitError::Failed)?;
    }
    Ok(end)
}

/// Starts the run, and evaluates what is not trained yet. Whether it breaks off is the same on all ranks.
fn start<L: Learner<Batch>, Batch>(
    learner: &mut L,
    config: FitConfig,
    state: &mut FitState,
    observe: &mut impl FnMut(&FitState, FitEvent) -> Result<ControlFlow<()>, L::Error>,
) -> Result<ControlFlow<()>, FitError<L::Error>> {
    let started = observe(state, FitEvent::Started(config)).map_err(FitError::Failed)?;
    if ranks::any(learner.collective(), started.is_break())? {
        return Ok(ControlFlow::Break(()));
    }
    // A run that goes on was evaluated before.
    if state.step == 0 && state.evaluations.is_empty() {
        let flow = evaluate::<L, Batch>(learner, state, observe)?;
        if ranks::any(learner.collective(), flow.is_break())? {
            // It ends in any case.
            let _ = save::<L, Batch>(learner, state, observe)?;
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// How the run ends before the next batch, if it does.
fn end_before_batch<L: Learner<Batch>, Batch>(
    learner: &mut L,
    config: FitConfig,
    state: &FitState,
    is_stopped: bool,
) -> Result<Option<FitEnd>, FitError<L::Error>> {
    if state.step >= config.steps {
        return Ok(Some(FitEnd::Done));
    }
    let patience = config.patience.map(|patience| patience.max(1));
    if patience.is_some_and(|patience| state.stale() >= patience) {
        return Ok(Some(FitEnd::NotBetter));
    }
    let is_stopped = ranks::any(learner.collective(), is_stopped)?;
    Ok(is_stopped.then_some(FitEnd::Stopped))
}

/// A step of the learner, of this number. `in_step` says whether it is within it: an error leaves that so.
fn take_step<L: Learner<Batch>, Batch>(
    learner: &mut L,
    batch: Batch,
    number: u64,
    in_step: &mut bool,
) -> Result<StepReport, FitError<L::Error>> {
    *in_step = true;
    let report = learner.step(batch).map_err(FitError::Failed)?;
    *in_step = false;
    if !report.skipped {
        check("training loss", report.loss, number)?;
        check("norm of the gradients", report.grad_norm, number)?;
    }
    Ok(report)
}

/// The validation loss and all other numbers, also if the observer breaks off in between: a resumed run does not measure them again.
fn evaluate<L: Learner<Batch>, Batch>(
    learner: &mut L,
    state: &mut FitState,
    observe: &mut impl FnMut(&FitState, FitEvent) -> Result<ControlFlow<()>, L::Error>,
) -> Result<ControlFlow<()>, FitError<L::Error>> {
    let mut flow = ControlFlow::Continue(());
    if let Some(loss) = learner.evaluate().map_err(FitError::Failed)? {
        let [loss] = ranks::of_first(learner.collective(), [loss])?;
        check("validation loss", loss, state.step)?;
        state.evaluations.push((state.step, loss));
        flow = observe(state, FitEvent::Evaluated(loss)).map_err(FitError::Failed)?;
    }
    for (name, number) in learner.measure().map_err(FitError::Failed)? {
        let [number] = ranks::of_first(learner.collective(), [number])?;
        let event = FitEvent::Measured(name, number);
        if observe(state, event).map_err(FitError::Failed)?.is_break() {
            flow = ControlFlow::Break(());
        }
    }
    Ok(flow)
}

fn save<L: Learner<Batch>, Batch>(
    learner: &mut L,
    state: &FitState,
    observe: &mut impl FnMut(&FitState, FitEvent) -> Result<ControlFlow<()>, L::Error>,
) -> Result<ControlFlow<()>, FitError<L::Error>> {
    let before = observe(state, FitEvent::Saving).map_err(FitError::Failed)?;
    learner.save(state).map_err(FitError::Failed)?;
    let after = observe(state, FitEvent::Saved).map_err(FitError::Failed)?;
    Ok(match before.is_break() {
        true => before,
        false => after,
    })
}

/// Checks that a run goes on with the optimizer that took its steps. Steps that were skipped are none of the optimizer.
fn check_state<Error>(steps: Option<u64>, state: &FitState) -> Result<(), FitError<Error>> {
    match steps {
        Some(0) if state.step > state.skipped => Err(FitError::OtherState {
            state: state.step,
            optimizer: 0,
        }),
        _ => Ok(()),
    }
}

fn of_other_state(state: u64, optimizer: u64) -> String {
    format!(
        "the state of `fit` is that of step {state}, but the optimizer has taken {optimizer} steps: load the checkpoint of this state into the trainer, or begin with `FitState::default()`"
    )
}

fn check<Error>(which: &'static str, found: f64, step: u64) -> Result<(), FitError<Error>> {
    match found.is_finite() {
        true => Ok(()),
        false => Err(FitError::Diverged { which, step, found }),
    }
}
