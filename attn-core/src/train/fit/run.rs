//! The loop around the steps of a trainer, put together of ready parts.

use std::{
    error::Error,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{FitConfig, FitEnd, FitError, FitEvent, FitState, Learner, StepReport, fit};
use crate::train::{Algorithm, TrainBatch, TrainError, Trainable, Trainer, trainer::ErrOf};

/// The error of a step or of a part of [`Fit`]. Its text and its cause are those of the error in it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct FitFailure(pub BoxedError);

type BoxedError = Box<dyn Error + Send + Sync>;

/// A run of [`fit()`] with the steps of a [`Trainer`]: [`Trainer::fit`] begins one, [`run`](Self::run) runs it.
///
/// Each part is a function of yours or of this crate, whose error is text, an `anyhow::Error`, or any error that is
/// `Send` and `Sync`.
///
/// ```
/// use attn::prelude::*;
/// use attn::batches::{Blocks, RandomBlocks};
/// use attn::checkpoint::{Checkpoints, LoadOptions};
/// use attn::train::{AdamWConfig, FitConfig, FitState};
/// use attn::viz::TrainingLog;
/// use std::sync::atomic::AtomicBool;
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
/// // A signal handler sets it, for example one of the crate `ctrlc`.
/// static STOP: AtomicBool = AtomicBool::new(false);
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let dev = Cpu::default();
/// let text: Vec<usize> = (0..1000).map(|i| i % 10).collect();
/// let mut trainer = dev.build_module::<Bigrams, f32>().trainer(AdamWConfig { lr: 0.05, ..Default::default() });
///
/// // Where the last run ended, if there was one.
/// let checkpoints = Checkpoints::new(folder);
/// let mut state = match checkpoints.latest()? {
///     Some(checkpoint) => {
///         trainer.load(&checkpoint, LoadOptions::default())?;
///         checkpoint.json("fit.json")?
///     }
///     None => FitState::default(),
/// };
///
/// let batches = RandomBlocks::new(&text, (4, 16), 1337, &dev)?.at(state.step).pairs();
/// let validation = Blocks::new(&text[900..], (4, 16), &dev)?.pairs().collect::<Result<Vec<_>, _>>()?;
/// let mut log = TrainingLog::new(folder, &state, 60)?.work(4 * 16, "tokens");
/// trainer
///     .fit(FitConfig { steps: 60, evaluate_every: 20, patience: None })
///     .evaluate(|trainer| trainer.evaluate_all(validation.iter().cloned()))
///     .save(|trainer, state| {
///         let contents = trainer.contents().json("fit.json", state);
///         checkpoints.save(state.step, &contents, state.measured()).map(drop)
///     })
///     .observe(|state, event| log.observe(state, event))
///     .stop(&STOP)
///     .run(batches, &mut state)?;
/// assert_eq!(checkpoints.steps()?, [20, 40, 60]);
/// assert!(state.evaluations[3].1 < state.evaluations[0].1);
/// log.report("Bigrams")?.write(folder.join("report.html"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "`run` runs it"]
#[doc(alias("Trainer.fit", "callbacks"))]
pub struct Fit<'a, M: Trainable, A> {
    parts: Parts<'a, M, A>,
    config: FitConfig,
    observers: Vec<Box<Observe<'a>>>,
    stops: Vec<Box<dyn FnMut(&FitState) -> bool + 'a>>,
}

type Observe<'a> = dyn FnMut(&FitState, FitEvent) -> Result<(), FitFailure> + 'a;
type Evaluate<'a, M, A> = dyn FnMut(&mut Trainer<M, A>) -> Result<f64, FitFailure> + 'a;
type Save<'a, M, A> = dyn FnMut(&mut Trainer<M, A>, &FitState) -> Result<(), FitFailure> + 'a;

/// The learner that [`fit`] trains: a trainer with its evaluation, measures and checkpoints.
struct Parts<'a, M: Trainable, A> {
    trainer: &'a mut Trainer<M, A>,
    evaluate: Option<Box<Evaluate<'a, M, A>>>,
    measures: Vec<(&'static str, Box<Evaluate<'a, M, A>>)>,
    save: Option<Box<Save<'a, M, A>>>,
}

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// Begins a run of many steps: see [`Fit`].
    pub fn fit(&mut self, config: FitConfig) -> Fit<'_, M, A> {
        Fit {
            parts: Parts {
                trainer: self,
                evaluate: None,
                measures: Vec::new(),
                save: None,
            },
            config,
            observers: Vec::new(),
            stops: Vec::new(),
        }
    }

    /// The mean [loss](Self::evaluate) of several batches. Each counts as often as its last tensor has numbers, padding among them: so the mean
    /// loss per target of batches of different sizes is that of all targets.
    ///
    /// # Errors
    /// [`TrainError::Call`] if the loss does not accept a batch, and [`TrainError::NoTargets`] if there are no batches with numbers: an
    /// iterator gives its batches once.
    #[doc(alias("validate", "eval_loop"))]
    pub fn evaluate_all<B: TrainBatch<M>>(
        &mut self,
        batches: impl IntoIterator<Item = B>,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        let mut sum = 0.0;
        let mut count = 0.0;
        for batch in batches {
            let targets = batch.weight() as f64;
            // The mean of no numbers is NaN.
            if targets > 0.0 {
                sum += targets * self.evaluate(batch)?;
                count += targets;
            }
        }
        match count > 0.0 {
            true => Ok(sum / count),
            false => Err(TrainError::NoTargets),
        }
    }
}

impl<'a, M: Trainable, A: Algorithm> Fit<'a, M, A> {
    /// Computes the validation loss: see [`Learner::evaluate`].
    pub fn evaluate<Failure: Into<BoxedError>>(
        mut self,
        mut loss: impl FnMut(&mut Trainer<M, A>) -> Result<f64, Failure> + 'a,
    ) -> Self {
        let evaluate = move |trainer: &mut _| loss(trainer).map_err(failure);
        self.parts.evaluate = Some(Box::new(evaluate));
        self
    }

    /// Measures another number, such as the share of right answers, with each evaluation. It is observed as [`FitEvent::Measured`].
    #[doc(alias("metrics", "accuracy"))]
    pub fn measure<Failure: Into<BoxedError>>(
        mut self,
        name: &'static str,
        mut number: impl FnMut(&mut Trainer<M, A>) -> Result<f64, Failure> + 'a,
    ) -> Self {
        let measure = move |trainer: &mut _| number(trainer).map_err(failure);
        self.parts.measures.push((name, Box::new(measure)));
        self
    }

    /// Saves a checkpoint: see [`Learner::save`].
    #[doc(alias("ModelCheckpoint"))]
    pub fn save<Failure: Into<BoxedError>>(
        mut self,
        mut save: impl FnMut(&mut Trainer<M, A>, &FitState) -> Result<(), Failure> + 'a,
    ) -> Self {
        let save = move |trainer: &mut _, state: &_| save(trainer, state).map_err(failure);
        self.parts.save = Some(Box::new(save));
        self
    }

    /// Tells this function all that happens. There may be several.
    #[doc(alias("callback", "logger"))]
    pub fn observe<Failure: Into<BoxedError>>(
        mut self,
        mut observe: impl FnMut(&FitState, FitEvent) -> Result<(), Failure> + 'a,
    ) -> Self {
        let observe = move |state: &_, event| observe(state, event).map_err(failure);
        self.observers.push(Box::new(observe));
        self
    }

    /// Ends the run after the step at which this is `true`, as when a signal handler has set it. A checkpoint is saved first.
    #[doc(alias("ctrlc", "SIGINT"))]
    pub fn stop(self, stop: &'a AtomicBool) -> Self {
        self.stop_when(|_| stop.load(Ordering::Relaxed))
    }

    /// Ends the run after the step, or the evaluation before the first, at which this returns `true`. A checkpoint is saved first.
    pub fn stop_when(mut self, stop: impl FnMut(&FitState) -> bool + 'a) -> Self {
        self.stops.push(Box::new(stop));
        self
    }

    /// Trains: see [`fit()`].
    ///
    /// # Errors
    /// [`FitError`], where [`FitError::Failed`] is the error of a step or of a part. The state is that of the last step that was taken.
    pub fn run<Batch, Failure>(
        mut self,
        batches: impl IntoIterator<Item = Result<Batch, Failure>>,
        state: &mut FitState,
    ) -> Result<FitEnd, FitError<FitFailure>>
    where
        Batch: TrainBatch<M>,
        Failure: Into<BoxedError>,
        TrainError<ErrOf<M>>: Into<BoxedError>,
    {
        let (observers, stops) = (&mut self.observers, &mut self.stops);
        fit(
            &mut self.parts,
            batches,
            self.config,
            state,
            |state, event| {
                for observe in observers.iter_mut() {
                    observe(state, event)?;
                }
                let may_stop = match event {
                    FitEvent::Step(_) => true,
                    FitEvent::Evaluated(_) | FitEvent::Measured(..) => state.step == 0,
                    FitEvent::Saving | FitEvent::Saved => false,
                };
                let mut stops = stops.iter_mut();
                Ok(match may_stop && stops.any(|stop| stop(state)) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                })
            },
        )
    }
}

fn failure(error: impl Into<BoxedError>) -> FitFailure {
    FitFailure(error.into())
}

impl<M, A, Batch> Learner<Batch> for Parts<'_, M, A>
where
    M: Trainable,
    A: Algorithm,
    Batch: TrainBatch<M>,
    TrainError<ErrOf<M>>: Into<BoxedError>,
{
    type Error = FitFailure;

    fn step(&mut self, batch: Batch) -> Result<StepReport, FitFailure> {
        let step = Trainer::step(self.trainer, batch).map_err(failure)?;
        Ok(step.into())
    }

    fn evaluate(&mut self) -> Result<Option<f64>, FitFailure> {
        let evaluate = self.evaluate.as_mut();
        evaluate.map(|loss| loss(self.trainer)).transpose()
    }

    fn measure(&mut self) -> Result<Vec<(&'static str, f64)>, FitFailure> {
        let measures = self.measures.iter_mut();
        let numbers = measures.map(|(name, number)| Ok((*name, number(self.trainer)?)));
        numbers.collect()
    }

    fn save(&mut self, state: &FitState) -> Result<(), FitFailure> {
        match &mut self.save {
            Some(save) => save(self.trainer, state),
            None => Ok(()),
        }
    }
}
