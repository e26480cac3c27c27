//! The folder of a run: its checkpoints, and the state that resuming needs.

use crate::{
    model::Model,
    saved::{CONFIG, Config, Saved, TOKENIZER},
};
use anyhow::{Context, Result, ensure};
use attn::{
    checkpoint::{Checkpoints, Contents, LoadOptions, RunLock},
    text::Vocabulary,
    train::AdamWState,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file with the [`History`].
const STATE: &str = "trainer_state.json";
/// The weight of the past in the displayed loss, which smooths it.
const SMOOTHING: f64 = 0.9;

/// The history of training.
///
/// Batches depend on the seed and the number of the step, so there is no state of a random generator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct History {
    /// The number of completed steps.
    pub(crate) step: usize,
    /// The training loss, smoothed.
    pub(crate) loss: f64,
    /// The evaluations on the validation split.
    pub(crate) looks: Vec<Look>,
}

/// A loss on the validation split.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Look {
    pub(crate) step: usize,
    pub(crate) loss: f64,
}

impl History {
    /// Records a step with this loss.
    pub(crate) fn record(&mut self, loss: f64) {
        let past = if self.step == 0 { loss } else { self.loss };
        self.loss = SMOOTHING * past + (1.0 - SMOOTHING) * loss;
        self.step += 1;
    }
}

/// The state at the start of training, which is empty at first.
#[derive(Default)]
pub(crate) struct Start {
    pub(crate) optimizer: AdamWState<f32>,
    pub(crate) history: History,
}

/// The folder that a run saves to.
pub(crate) struct Run<'a> {
    folder: PathBuf,
    checkpoints: Checkpoints,
    config: Config,
    vocabulary: &'a Vocabulary,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        folder: &Path,
        keep_last: usize,
        block_size: usize,
        vocabulary: &'a Vocabulary,
    ) -> Self {
        Self {
            folder: folder.into(),
            checkpoints: Checkpoints::new(folder).keep_last(keep_last),
            config: Config::new(block_size),
            vocabulary,
        }
    }

    /// Locks the folder, as long as the result exists.
    pub(crate) fn lock(&self) -> Result<RunLock> {
        let lock = self.checkpoints.lock_run();
        lock.context("wait until the other run ends, or give another folder with --out")
    }

    /// Checks that the folder has no checkpoints of another run.
    pub(crate) fn check_new(&self) -> Result<()> {
        ensure!(
            self.checkpoints.latest()?.is_none(),
            "there are checkpoints in {} already: go on from them with --resume, \
             or give another folder with --out",
            self.folder.display()
        );
        Ok(())
    }

    /// Reads the latest checkpoint.
    pub(crate) fn resume(&self, model: &mut Model) -> Result<Start> {
        let latest = self.checkpoints.latest()?;
        let latest = latest.with_context(|| {
            format!(
                "there is no checkpoint in {} to --resume from",
                self.folder.display()
            )
        })?;
        let saved = Saved::open(latest.folder())?;
        saved.check_vocabulary(self.vocabulary)?;
        ensure!(
            saved.config == self.config,
            "--block-size {} is not that of {}, which is {}",
            self.config.block_size,
            latest.folder().display(),
            saved.config.block_size
        );
        saved.load(model)?;
        Ok(Start {
            optimizer: latest.load_optimizer(model, LoadOptions::default())?,
            history: latest.json(STATE)?,
        })
    }

    /// Saves a checkpoint, with the validation loss if it was measured after this step.
    pub(crate) fn save(
        &self,
        model: &Model,
        optimizer: &AdamWState<f32>,
        history: &History,
    ) -> Result<()> {
        let contents = Contents::new()
            .model(model)
            .optimizer(optimizer)
            .json(CONFIG, &self.config)
            .json(TOKENIZER, self.vocabulary)
            .json(STATE, history);
        let look = history.looks.last();
        let measured = look.filter(|look| look.step == history.step);
        let metric = measured.map(|look| look.loss);
        self.checkpoints
            .save(history.step as u64, &contents, metric)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use attn::dfdx::prelude::*;

    #[test]
    fn runs_that_do_not_fit_are_refused() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let abc = Vocabulary::characters("abc")?;
        let abd = Vocabulary::characters("abd")?;
        let mut model = model::build(&Cpu::default())?;
        let run = |block, vocabulary| Run::new(folder.path(), 2, block, vocabulary);
        let mut refusal = |run: Run<'_>| {
            let refused = run.resume(&mut model).err();
            refused.map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(refusal(run(16, &abc)).contains("no checkpoint"));
        run(16, &abc).check_new()?;
        let saved = model::build(&Cpu::default())?;
        run(16, &abc).save(&saved, &AdamWState::default(), &History::default())?;
        assert!(run(16, &abc).check_new().is_err());
        assert!(refusal(run(16, &abd)).contains("other tokens"));
        assert!(refusal(run(8, &abc)).starts_with("--block-size 8 is not that of"));
        assert_eq!(refusal(run(16, &abc)), "");
        Ok(())
    }

    #[test]
    fn a_folder_is_of_one_run_at_a_time() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("run");
        let abc = Vocabulary::characters("abc")?;
        let run = || Run::new(&out, 2, 16, &abc);
        let first = run().lock()?;
        let refused = run().lock().err().map(|error| format!("{error:#}"));
        let expected = format!(
            "wait until the other run ends, or give another folder with --out: {}: another run is using this folder",
            out.display()
        );
        assert_eq!(refused, Some(expected));
        let model = model::build(&Cpu::default())?;
        run().save(&model, &AdamWState::default(), &History::default())?;
        drop(first);
        assert!(run().lock().is_ok());
        Ok(())
    }

    #[test]
    fn the_loss_that_is_shown_starts_with_the_first_and_follows_slowly() {
        let mut history = History::default();
        history.record(4.0);
        assert_eq!((history.step, history.loss), (1, 4.0));
        history.record(3.0);
        // The error of a rounding or two.
        assert!((history.loss - 3.9).abs() < 1e-12);
    }
}
