//! The loop around the steps of a trainer, put together of ready parts.

use std::{
    error::Error,
    hash::{DefaultHasher, Hash, Hasher},
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{FitConfig, FitEnd, FitError, FitEvent, FitState, Learner, StepReport, fit};
use crate::train::{
    Algorithm, Collective, CollectiveError, TrainBatch, TrainError, Trainable, Trainer,
    trainer::ErrOf,
};

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
/// let mut log = TrainingLog::new(folder, &state)?.work(4 * 16, "tokens");
/// trainer
///     .fit(FitConfig { steps: 60, evaluate_every: 20, ..Default::default() })
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
    /// The number of batches of a step.
    accumulate: usize,
    observers: Vec<Box<Observe<'a>>>,
    stops: Vec<Box<dyn FnMut(&FitState) -> bool + 'a>>,
    /// The hashes of what all ranks have in common, by name.
    common: Vec<(&'static str, u64)>,
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
            accumulate: 1,
            observers: Vec::new(),
            stops: Vec::new(),
            common: Vec::new(),
        }
    }

    /// The mean [loss](Self::evaluate) of several batches, in which each counts by its targets, as in [`accumulate`](Self::accumulate): so the
    /// mean loss per target of batches of different sizes, or with different padding, is that of all targets. Batches without targets are
    /// left out.
    ///
    /// Of several [ranks](Self::across), all call it with the same batches. Each evaluates a part of them, and all return the mean of all.
    ///
    /// # Errors
    /// [`TrainError::Call`] if the loss does not accept a batch, and [`TrainError::NoTargets`] if there are no batches with numbers: an
    /// iterator gives its batches once. [`TrainError::Ranks`] if a rank has failed.
    #[doc(alias("validate", "eval_loop"))]
    pub fn evaluate_all<B: TrainBatch<M>>(
        &mut self,
        batches: impl IntoIterator<Item = B>,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        let evaluated = self.evaluate_part(batches);
        self.mean_of_ranks(evaluated)
    }

    /// The mean over all ranks, each of which has evaluated its part.
    fn mean_of_ranks(
        &mut self,
        evaluated: Result<Mean, TrainError<ErrOf<M>>>,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        let sum = evaluated.and_then(|Mean { sum, targets }| {
            let Some(ranks) = Trainer::collective(self) else {
                return Ok(Mean { sum, targets });
            };
            let sums = ranks.sum(&[sum, targets])?;
            let (sum, targets) = (sums[0], sums[1]);
            Ok(Mean { sum, targets })
        });
        self.tell_ranks(&sum);
        sum?.of_targets().ok_or(TrainError::NoTargets)
    }

    /// Evaluates every so many-th batch, of several ranks.
    fn evaluate_part<B: TrainBatch<M>>(
        &mut self,
        batches: impl IntoIterator<Item = B>,
    ) -> Result<Mean, TrainError<ErrOf<M>>> {
        self.join()?;
        let mut mean = Mean::default();
        let (rank, ranks) = (self.rank(), self.ranks());
        for batch in batches.into_iter().skip(rank).step_by(ranks) {
            mean.add(self, batch)?;
        }
        Ok(mean)
    }

    /// [`evaluate_all`](Self::evaluate_all) of batches that may fail, as those that are read of a file: one at a time, so validation data need
    /// not fit into memory.
    ///
    /// ```
    /// # use attn::{batches::Blocks, prelude::*, train::AdamWConfig};
    /// # model! {
    /// #     struct Bigrams<vocab = 10, d = 8>;
    /// #     fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] { linear::<vocab>(embedding::<vocab, d>(ids)) }
    /// #     fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] { cross_entropy(forward(ids), targets) }
    /// # }
    /// # let dev = Cpu::default();
    /// # let text: Vec<usize> = (0..100).map(|i| i % 10).collect();
    /// # let mut trainer = dev.build_module::<Bigrams, f32>().trainer(AdamWConfig::default());
    /// let loss = trainer.try_evaluate_all(Blocks::new(&text, (4, 16), &dev)?.pairs())?;
    /// # assert!(loss.is_finite());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first error of a batch, which ends all [ranks](Self::across), and the errors of [`evaluate_all`](Self::evaluate_all).
    #[doc(alias("validate", "eval_loop"))]
    pub fn try_evaluate_all<B: TrainBatch<M>, Failure: Into<BoxedError>>(
        &mut self,
        batches: impl IntoIterator<Item = Result<B, Failure>>,
    ) -> Result<f64, FitFailure>
    where
        TrainError<ErrOf<M>>: Into<BoxedError>,
    {
        let mut failed = None;
        let batches = batches.into_iter().map_while(|batch| match batch {
            Ok(batch) => Some(batch),
            Err(error) => {
                failed = Some(failure(error));
                None
            }
        });
        let evaluated = self.evaluate_part(batches);
        if let Some(error) = failed {
            if let Some(ranks) = Trainer::collective(self) {
                ranks.fail(&error.to_string());
            }
            return Err(error);
        }
        self.mean_of_ranks(evaluated).map_err(failure)
    }
}

/// The mean of the losses of batches, in which each counts by its targets.
#[derive(Default)]
struct Mean {
    sum: f64,
    targets: f64,
}

impl Mean {
    /// A batch without targets is left out: the mean of no numbers is NaN.
    fn add<M: Trainable, A: Algorithm, B: TrainBatch<M>>(
        &mut self,
        trainer: &mut Trainer<M, A>,
        batch: B,
    ) -> Result<(), TrainError<ErrOf<M>>> {
        let targets = batch.targets() as f64;
        if targets > 0.0 {
            self.sum += targets * trainer.evaluate(batch)?;
            self.targets += targets;
        }
        Ok(())
    }

    fn of_targets(self) -> Option<f64> {
        (self.targets > 0.0).then(|| self.sum / self.targets)
    }
}

impl<'a, M: Trainable, A: Algorithm> Fit<'a, M, A> {
    /// Takes each step on so many batches, one after the other, and on the mean of their losses: a step on more examples than fit into memory
    /// at once. 0 counts as 1. If the batches end within a step, it is on those that there are.
    ///
    /// A resumed run goes on behind the batches of its steps: `RandomBlocks::new(..)?.at(4 * state.step)` if there are 4 in a step.
    ///
    /// PyTorch: `gradient_accumulation_steps` of nanoGPT and of Hugging Face's `Trainer`, `accumulate_grad_batches` of Lightning.
    #[doc(alias("gradient_accumulation_steps", "accumulate_grad_batches"))]
    pub fn accumulate(mut self, batches: usize) -> Self {
        self.accumulate = batches.max(1);
        self
    }

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

    /// Tells this function all that happens. There may be several. Of several [ranks](Trainer::across), it is called on rank 0 alone: so one
    /// of them prints and writes.
    #[doc(alias("callback", "logger"))]
    pub fn observe<Failure: Into<BoxedError>>(
        mut self,
        mut observe: impl FnMut(&FitState, FitEvent) -> Result<(), Failure> + 'a,
    ) -> Self {
        let observe = move |state: &_, event| observe(state, event).map_err(failure);
        self.observers.push(Box::new(observe));
        self
    }

    /// Ends the run after the step, the evaluation or the checkpoint at which this is `true`, as when a signal handler has set it. A checkpoint is
    /// saved first.
    ///
    /// Of several [ranks](Trainer::across), all end after the same step, whichever of them is told so.
    #[doc(alias("ctrlc", "SIGINT", "SIGTERM"))]
    pub fn stop(self, stop: &'a AtomicBool) -> Self {
        self.stop_when(|_| stop.load(Ordering::Relaxed))
    }

    /// Ends the run after the step, the evaluation or the checkpoint at which this returns `true`. A checkpoint is saved first.
    pub fn stop_when(mut self, stop: impl FnMut(&FitState) -> bool + 'a) -> Self {
        self.stops.push(Box::new(stop));
        self
    }

    /// Checks before the first step that all [ranks](Trainer::across) have the same value, which `what` names: the tokens of a text, the settings
    /// of a program. A hash of it is compared, which takes about a second for each gigabyte. Without it, ranks would train one model on
    /// different data, and nobody would see it.
    ///
    /// The program itself, the model, the settings of the trainer, [`FitConfig`] and [`FitState`] are compared in any case.
    ///
    /// ```
    /// # use attn::{prelude::*, train::{AdamWConfig, FitConfig, FitError, FitState, Threads}};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// let ends = Threads::run(2, |rank| {
    ///     let data = match attn::train::Collective::rank(&rank) {
    ///         0 => "of rank 0",
    ///         _ => "other",
    ///     };
    ///     let mut trainer = Cpu::default().build_module::<Net, f32>().trainer(AdamWConfig::default()).across(rank);
    ///     let x: Tensor<Rank2<4, 2>, f32, _> = Cpu::default().sample_normal();
    ///     let batches = [Ok::<_, std::convert::Infallible>(x)];
    ///     trainer.fit(FitConfig { steps: 1, ..FitConfig::default() }).agree("data", data).run(batches, &mut FitState::default())
    /// });
    /// for end in ends {
    ///     let error = end.expect("no rank panics").unwrap_err().to_string();
    ///     assert!(error.starts_with("rank 1 has other data than rank 0"), "{error}");
    /// }
    /// ```
    #[doc(alias("hash", "fingerprint"))]
    pub fn agree(mut self, what: &'static str, value: &(impl Hash + ?Sized)) -> Self {
        if self.parts.trainer.ranks() > 1 {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            self.common.push((what, hasher.finish()));
        }
        self
    }

    /// Checks what all ranks have in common.
    fn check_ranks(&mut self) -> Result<(), CollectiveError> {
        let parts = &mut self.parts;
        let measures: Vec<_> = parts.measures.iter().map(|(name, _)| *name).collect();
        let settings = format!(
            "{} {} {} {measures:?} {:?}",
            self.accumulate,
            parts.evaluate.is_some(),
            parts.save.is_some(),
            self.common
                .iter()
                .map(|(what, _)| *what)
                .collect::<Vec<_>>(),
        );
        let Some(ranks) = Trainer::collective(parts.trainer) else {
            return Ok(());
        };
        ranks.agree("parts of `fit`", settings.as_bytes())?;
        for (what, hash) in &self.common {
            ranks.agree(what, &hash.to_le_bytes())?;
        }
        Ok(())
    }

    /// Trains: see [`fit()`].
    ///
    /// Of several [ranks](Trainer::across), an error of one ends all of them.
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
        let joined = self.parts.trainer.join();
        self.parts.trainer.tell_ranks(&joined);
        joined.map_err(|error| FitError::Failed(failure(error)))?;
        self.check_ranks()?;
        let is_first = self.parts.trainer.rank() == 0;
        let (observers, stops) = (&mut self.observers, &mut self.stops);
        fit(
            &mut self.parts,
            Steps {
                batches: batches.into_iter(),
                of_each: self.accumulate,
            },
            self.config,
            state,
            |state, event| {
                for observe in observers.iter_mut().filter(|_| is_first) {
                    observe(state, event)?;
                }
                let may_stop = !matches!(event, FitEvent::Started(_) | FitEvent::Rank { .. });
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

/// The batches of each step.
struct Steps<Batches> {
    batches: Batches,
    of_each: usize,
}

impl<Batch, Failure, Batches: Iterator<Item = Result<Batch, Failure>>> Iterator for Steps<Batches> {
    type Item = Result<Vec<Batch>, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches: Result<Vec<_>, _> = self.batches.by_ref().take(self.of_each).collect();
        match batches {
            Ok(none) if none.is_empty() => None,
            all => Some(all),
        }
    }
}

impl<M, A, Batch> Learner<Vec<Batch>> for Parts<'_, M, A>
where
    M: Trainable,
    A: Algorithm,
    Batch: TrainBatch<M>,
    TrainError<ErrOf<M>>: Into<BoxedError>,
{
    type Error = FitFailure;

    fn step(&mut self, mut batches: Vec<Batch>) -> Result<StepReport, FitFailure> {
        let last = batches.pop();
        let step = batches
            .into_iter()
            .try_for_each(|batch| self.trainer.accumulate(batch).map(drop))
            .and_then(|()| match last {
                Some(last) => Trainer::step(self.trainer, last),
                None => self.trainer.apply(),
            });
        if step.is_err() {
            self.trainer.forget_batches();
        }
        Ok(step.map_err(failure)?.into())
    }

    fn steps(&self) -> Option<u64> {
        Some(self.trainer.state().step)
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

    fn collective(&mut self) -> Option<&mut dyn Collective> {
        Trainer::collective(self.trainer)
    }

    fn reason(&self, error: &FitFailure) -> String {
        error.to_string()
    }
}
