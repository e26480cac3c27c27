//! The folder of a run: its checkpoints, and the state that resuming needs.

use crate::{
    saved::{CONFIG, Config, Saved, TOKENIZER},
    train::Trainer,
};
use anyhow::{Context, Result, ensure};
use attn::{
    checkpoint::{Checkpoints, LoadOptions, RunLock},
    text::Vocabulary,
    train::FitState,
};
use std::path::{Path, PathBuf};

/// The file with the [`FitState`].
const STATE: &str = "trainer_state.json";

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

    /// Goes on from the latest checkpoint, whose state of the loop is returned.
    pub(crate) fn resume(&self, trainer: &mut Trainer) -> Result<FitState> {
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
        trainer.load(&latest, LoadOptions::default())?;
        Ok(latest.json(STATE)?)
    }

    /// Saves a checkpoint, with the validation loss if it was measured after this step.
    pub(crate) fn save(&self, trainer: &mut Trainer, state: &FitState) -> Result<()> {
        let contents = trainer
            .contents()
            .json(CONFIG, &self.config)
            .json(TOKENIZER, self.vocabulary)
            .json(STATE, state);
        self.checkpoints
            .save(state.step, &contents, state.measured())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Args, model, train};
    use attn::dfdx::prelude::*;
    use clap::Parser;

    fn trainer() -> Result<Trainer> {
        let options = Args::parse_from(["char_lm"]).training;
        Ok(train::trainer(model::build(&Cpu::default())?, &options))
    }

    #[test]
    fn runs_that_do_not_fit_are_refused() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let abc = Vocabulary::characters("abc")?;
        let abd = Vocabulary::characters("abd")?;
        let mut resumed = trainer()?;
        let run = |block, vocabulary| Run::new(folder.path(), 2, block, vocabulary);
        let mut refusal = |run: Run<'_>| {
            let refused = run.resume(&mut resumed).err();
            refused.map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(refusal(run(16, &abc)).contains("no checkpoint"));
        run(16, &abc).check_new()?;
        run(16, &abc).save(&mut trainer()?, &FitState::default())?;
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
        run().save(&mut trainer()?, &FitState::default())?;
        drop(first);
        assert!(run().lock().is_ok());
        Ok(())
    }
}
