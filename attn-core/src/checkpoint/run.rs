//! The run of a trainer in its folder.

use serde::de::DeserializeOwned;

use super::{Checkpoint, CheckpointError, Checkpoints, Contents, LoadOptions, Problem, RunLock};
use crate::train::{Algorithm, FitState, Trainable, Trainer};

/// The file with the [`FitState`].
const STATE: &str = "fit.json";

/// A run in a folder that it has for itself: a new one, or one that goes on from its latest checkpoint.
///
/// Without it a program calls [`Checkpoints::lock_run`], [`Checkpoints::latest`], [`Trainer::load`], [`Checkpoint::json`] and
/// [`Checkpoints::save`].
///
/// ```
/// use attn::{batches::RandomBlocks, checkpoint::Checkpoints, prelude::*};
/// use attn::train::{AdamWConfig, FitConfig};
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
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("run");
/// let text: Vec<usize> = (0..1000).map(|i| i % 10).collect();
/// for (resume, steps) in [(false, 20), (true, 30)] {
///     let run = Checkpoints::new(&folder).run(resume)?;
///     let dev = Cpu::default();
///     let mut trainer = dev.build_module::<Bigrams, f32>().trainer(AdamWConfig::default());
///     let mut state = run.load(&mut trainer)?;
///     let batches = RandomBlocks::new(&text, (4, 16), 1337, &dev)?.at(state.step).pairs();
///     trainer
///         .fit(FitConfig { steps, evaluate_every: 10, ..FitConfig::default() })
///         .save(|trainer, state| run.save(state, trainer.contents().json("tokenizer.json", "0123456789")))
///         .run(batches, &mut state)?;
/// }
/// assert_eq!(Checkpoints::new(&folder).steps()?, [10, 20, 30]);
/// assert!(Checkpoints::new(&folder).run(false).is_err()); // there is a run already
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Hugging Face: `trainer.train(resume_from_checkpoint=True)`; Lightning: `trainer.fit(.., ckpt_path="last")`.
#[derive(Debug)]
#[doc(alias("resume_from_checkpoint", "ckpt_path"))]
pub struct Run {
    pub(super) checkpoints: Checkpoints,
    pub(super) last: Option<Checkpoint>,
    /// The lock of the folder. Of several ranks, the first one has it.
    pub(super) lock: Option<RunLock>,
}

impl Checkpoints {
    /// Begins a run in this folder, or goes on with the one that is there. The folder is [locked](Self::lock_run) until the result is dropped.
    ///
    /// # Errors
    /// [`Problem::HasRun`] if a new run finds checkpoints, [`Problem::HasNone`] if a resumed one finds none, the errors of
    /// [`lock_run`](Self::lock_run). No folder is made for a run that cannot be resumed.
    pub fn run(self, resume: bool) -> Result<Run, CheckpointError> {
        if resume && self.latest()?.is_none() {
            return Err(Problem::HasNone.at(self.folder()));
        }
        let lock = self.lock_run()?;
        // Another run may have saved until the folder was locked.
        let last = self.latest()?;
        match &last {
            Some(_) if !resume => Err(Problem::HasRun.at(self.folder())),
            _ => Ok(Run {
                checkpoints: self,
                last,
                lock: Some(lock),
            }),
        }
    }
}

impl Run {
    /// The checkpoint that the run goes on from; `None` if it is new.
    pub fn last(&self) -> Option<&Checkpoint> {
        self.last.as_ref()
    }

    /// A file that [`Contents::json`] saved in the checkpoint that the run goes on from; `None` if the run is new.
    ///
    /// # Errors
    /// As [`Checkpoint::json`].
    pub fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, CheckpointError> {
        let last = self.last.as_ref();
        last.map(|last| last.json(name)).transpose()
    }

    /// The state that training begins with: that of a new run, with the trainer as it is; or that of the checkpoint, whose weights and
    /// optimizer the trainer gets.
    ///
    /// # Errors
    /// As [`Trainer::load`] and [`Checkpoint::json`].
    pub fn load<M: Trainable, A: Algorithm>(
        &self,
        trainer: &mut Trainer<M, A>,
    ) -> Result<FitState, CheckpointError> {
        let Some(last) = &self.last else {
            return Ok(FitState::default());
        };
        let state = last.json(STATE)?;
        trainer.load(last, LoadOptions::default())?;
        Ok(state)
    }

    /// Saves a checkpoint after `state.step` steps, with the state. Its [metric](Checkpoints::save) is the validation loss, if it was measured
    /// after this step.
    ///
    /// # Errors
    /// As [`Checkpoints::save`].
    pub fn save<'a>(
        &self,
        state: &'a FitState,
        contents: Contents<'a>,
    ) -> Result<(), CheckpointError> {
        let contents = contents.json(STATE, state);
        self.checkpoints
            .save(state.step, &contents, state.measured())?;
        Ok(())
    }
}
