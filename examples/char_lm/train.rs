//! Training: how a step changes the model, and the loop around the steps.

use crate::{cli::Training, corpus::Corpus, model::Model, run::Run};
use anyhow::Result;
use attn::{
    batches::{Blocks, RandomBlocks},
    dfdx::prelude::*,
    train::{AdamWConfig, Cosine, FitConfig, FitEnd, FitState},
    viz::TrainingLog,
};

/// Blocks of the validation split.
pub(crate) type Measured<'a> = Blocks<&'a Vec<usize>, Cpu>;

/// The model in training, and the state of AdamW.
pub(crate) type Trainer = attn::train::Trainer<Model, AdamWConfig>;

/// Steps of AdamW, whose rate rises and then falls along half a cosine. Norms, biases and embeddings do not decay.
pub(crate) fn trainer(model: Model, options: &Training) -> Trainer {
    let adamw = AdamWConfig {
        lr: options.learning_rate,
        betas: [0.9, 0.99],
        weight_decay: options.weight_decay,
        ..AdamWConfig::default()
    };
    let trainer = model.trainer(adamw).schedule(rates(options));
    match options.grad_clip {
        0.0 => trainer,
        limit => trainer.clip(limit),
    }
}

fn rates(options: &Training) -> Cosine {
    Cosine {
        highest: options.learning_rate,
        lowest: options.lowest_rate(),
        warm_up: options.warmup() as u64,
        steps: options.steps as u64,
    }
}

/// What a run needs beside its trainer.
pub(crate) struct Course<'a> {
    pub(crate) options: &'a Training,
    pub(crate) corpus: &'a Corpus,
    /// The blocks of the validation split for evaluations.
    pub(crate) measured: &'a Measured<'a>,
    /// Seed of the batches.
    pub(crate) seed: u64,
    /// The folder of the checkpoints.
    pub(crate) run: &'a Run<'a>,
    /// Whether to stop, after each step.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl Course<'_> {
    /// Trains up to the last step of the options. Each evaluation saves a checkpoint.
    pub(crate) fn train(
        &self,
        trainer: &mut Trainer,
        state: &mut FitState,
        log: &mut TrainingLog,
    ) -> Result<FitEnd> {
        let options = self.options;
        let shape = (options.batch_size, options.block_size);
        let batches = RandomBlocks::new(&self.corpus.train, shape, self.seed, &Cpu::default())?;
        // A batch depends on its number alone, so a resumed run goes on with the same.
        let accumulate = options.gradient_accumulation_steps;
        let batches = batches.at(accumulate as u64 * state.step).pairs();
        let validation: Vec<_> = self.measured.clone().pairs().collect::<Result<_, _>>()?;
        let config = FitConfig {
            steps: options.steps as u64,
            evaluate_every: options.eval_interval as u64,
            ..FitConfig::default()
        };
        let end = trainer
            .fit(config)
            .accumulate(accumulate)
            .evaluate(|trainer| trainer.evaluate_all(validation.iter().cloned()))
            .save(|trainer, state| self.run.save(trainer, state))
            .observe(|state, event| log.observe(state, event))
            .stop_when(|_| (self.stop)())
            .run(batches, state);
        log.finish();
        Ok(end?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Args, model};
    use attn::{
        checkpoint::Checkpoints,
        text::Vocabulary,
        train::{AdamWState, Schedule},
    };
    use clap::Parser;
    use std::{cell::Cell, fs, path::Path};

    fn learning_rate(step: u64, options: &Training) -> f64 {
        rates(options).rate(step)
    }

    fn options(flags: &[&str]) -> Training {
        Args::parse_from(["char_lm"].iter().chain(flags)).training
    }

    #[test]
    fn the_rate_rises_then_falls_to_a_tenth() {
        let options = options(&["--steps=110", "--warmup-steps=10", "--learning-rate=1"]);
        assert_eq!(learning_rate(5, &options), 0.5);
        assert_eq!(learning_rate(10, &options), 1.0);
        assert!((learning_rate(60, &options) - 0.55).abs() < 1e-12);
        assert!((learning_rate(110, &options) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn a_tenth_of_a_short_run_is_warm_up() {
        assert_eq!(options(&["--steps=60"]).warmup(), 6);
        assert_eq!(options(&["--steps=9000"]).warmup(), 100);
        assert_eq!(options(&["--steps=60", "--warmup-steps=9"]).warmup(), 9);
    }

    #[test]
    fn a_run_shorter_than_its_warm_up_has_a_rate() {
        let options = options(&["--steps=3", "--warmup-steps=10"]);
        assert!((1..=3).all(|step| learning_rate(step, &options) > 0.0));
    }

    const WORD: &str = "begat ";
    const NEVER: usize = usize::MAX - 1;

    /// The end of a run, the bits of its logits, and the state of its optimizer.
    struct Trained {
        end: FitEnd,
        state: FitState,
        bits: Vec<u32>,
        optimizer: AdamWState<f32>,
    }

    /// Trains in `folder` on text of one repeated word, for at most `most` steps of those of the flags.
    fn train(
        folder: &Path,
        (seed, flags): (u64, &[&str]),
        most: usize,
        resume: bool,
    ) -> Result<Trained> {
        let options = options(flags);
        let block = options.block_size;
        let device = &Cpu::seed_from_u64(seed);
        let corpus = &Corpus::new(&WORD.repeat(100), Vocabulary::characters(WORD)?, block)?;
        let shape = (options.batch_size, block);
        let run = &Run::new(folder, 9, block, &corpus.vocabulary);
        let mut trainer = trainer(model::build(device)?, &options);
        let mut state = match resume {
            true => run.resume(&mut trainer)?,
            false => FitState::default(),
        };
        let steps = Cell::new(0);
        let course = Course {
            options: &options,
            corpus,
            measured: &Blocks::new(&corpus.validation, shape, device)?,
            seed,
            run,
            stop: &|| steps.replace(steps.get() + 1) + 1 == most + usize::from(!resume),
        };
        let mut log = TrainingLog::new(folder, &state)?.quiet();
        let end = course.train(&mut trainer, &mut state, &mut log)?;
        assert_eq!(run.resume(&mut trainer)?, state);
        let logits = trainer
            .model()
            .try_forward(device.tensor_from_vec(vec![0, 1, 2, 3], (1, 4)))?;
        Ok(Trained {
            end,
            state,
            bits: logits.as_vec().iter().map(|x| x.to_bits()).collect(),
            optimizer: trainer.state().clone(),
        })
    }

    const SMALL: [&str; 4] = [
        "--steps=20",
        "--eval-interval=8",
        "--batch-size=2",
        "--block-size=8",
    ];

    #[test]
    fn training_learns_and_is_repeated_by_its_seed() -> Result<()> {
        let of = |seed| {
            let folder = tempfile::tempdir()?;
            train(folder.path(), (seed, &SMALL), NEVER, false)
        };
        let Trained { state, bits, .. } = of(7)?;
        let evaluations = &state.evaluations;
        let steps: Vec<u64> = evaluations.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [0, 8, 16, 20]);
        assert!(evaluations[3].1 < evaluations[0].1);
        assert_eq!(of(7)?.bits, bits);
        assert_ne!(of(8)?.bits, bits);
        Ok(())
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_as_if_it_was_not() -> Result<()> {
        let whole = tempfile::tempdir()?;
        let all = train(whole.path(), (7, &SMALL), NEVER, false)?;
        assert_eq!(all.end, FitEnd::Done);
        // 8 is a step with an evaluation, the others are not; 20 is the last.
        for most in [1, 8, 10, 19] {
            let parts = tempfile::tempdir()?;
            let first = train(parts.path(), (7, &SMALL), most, false)?;
            assert_eq!(
                (first.end, first.state.step),
                (FitEnd::Stopped, most as u64)
            );
            let second = train(parts.path(), (7, &SMALL), NEVER, true)?;
            assert_eq!(second.state, all.state);
            assert_eq!(second.bits, all.bits);
            assert_eq!(second.optimizer, all.optimizer);
            let model =
                |folder: &Path| fs::read(folder.join("step-00000020").join("model.safetensors"));
            assert_eq!(model(parts.path())?, model(whole.path())?);
            let metrics = |folder: &Path| fs::read_to_string(folder.join("metrics.jsonl"));
            assert_eq!(metrics(parts.path())?, metrics(whole.path())?);
        }
        Ok(())
    }

    #[test]
    fn a_run_that_diverges_says_when_and_keeps_what_was_saved() -> Result<()> {
        let folder = tempfile::tempdir()?;
        train(folder.path(), (7, &SMALL), 4, false)?;
        // A learning rate that makes the weights infinite.
        let mut flags = SMALL.to_vec();
        flags.extend(["--learning-rate=1e30", "--min-lr=1e30", "--warmup-steps=0"]);
        let refused = train(folder.path(), (7, &flags), NEVER, true).err();
        let message = refused.map(|e| e.to_string()).unwrap_or_default();
        for part in ["step 6: the loss is", "forward: `", "smaller learning rate"] {
            assert!(message.contains(part), "{message}");
        }
        let saved = Checkpoints::new(folder.path());
        assert_eq!(saved.steps()?, [4]);
        Ok(())
    }
}
