//! The training loop: AdamW with a warm-up and a cosine decay, and regular evaluations on the validation split.

use crate::{
    baseline::Baselines,
    cli::Training,
    corpus::Corpus,
    model::{self, Model},
    progress::Progress,
    records::{GRADIENT_NORM, LEARNING_RATE, TRAIN_LOSS, VALIDATION_LOSS},
    run::{Run, Start},
};
use anyhow::{Context, Result, bail, ensure};
use attn::{
    batches::{Blocks, RandomBlocks, TokenBatch},
    dfdx::prelude::*,
    train::{
        AdamW, AdamWConfig, AdamWState, Cosine, FitConfig, FitEnd, FitError, FitEvent, FitState,
        Learner, Schedule, StepReport, clip_grad_norm, fit,
    },
    viz::Metrics,
};
use std::{ops::ControlFlow, time::Instant};

/// Blocks of the validation split.
pub(crate) type Measured<'a> = Blocks<&'a Vec<usize>, Cpu>;

/// The parts of a training run.
pub(crate) struct Trainer<'a> {
    pub(crate) options: &'a Training,
    pub(crate) corpus: &'a Corpus,
    /// The blocks of the validation split for evaluations, and the baselines there.
    pub(crate) measured: &'a Measured<'a>,
    pub(crate) baselines: &'a Baselines,
    pub(crate) device: &'a Cpu,
    /// Seed of the batches.
    pub(crate) seed: u64,
    /// The run that saves checkpoints.
    pub(crate) run: &'a Run<'a>,
    /// Returns whether to stop, after each step.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

/// The result of training.
pub(crate) struct Outcome {
    pub(crate) state: FitState,
    /// Whether it was stopped.
    pub(crate) stopped: bool,
}

impl Trainer<'_> {
    /// Trains `model` up to the last step of the options, and saves it at every evaluation. Metrics are written to `metrics`.
    pub(crate) fn run(
        &self,
        model: &mut Model,
        start: Start,
        metrics: &mut Metrics,
    ) -> Result<Outcome> {
        let options = self.options;
        let Start {
            optimizer: memory,
            mut state,
        } = start;
        let size = (options.batch_size, options.block_size);
        let batches = RandomBlocks::new(&self.corpus.train, size, self.seed, self.device)?;
        // The batches of a step depend on its number alone, so a resumed run goes on with the same.
        let batches = batches.at(state.step);
        let mut progress = Progress::new(state.step as usize, options.steps, options.log_interval);
        let mut optimizer = AdamW::new(adamw(options));
        optimizer.state = memory;
        let mut learner = InTraining {
            trainer: self,
            gradients: Some(model.try_alloc_grads()?),
            step: state.step,
            model,
            optimizer,
        };
        let config = FitConfig {
            steps: options.steps as u64,
            evaluate_every: options.eval_interval as u64,
            patience: None,
        };
        let mut began = Instant::now();
        let end = fit(&mut learner, batches, config, &mut state, |state, event| {
            let goes_on = self.observe(state, event, began, &mut progress, metrics)?;
            began = Instant::now();
            Ok(goes_on)
        });
        progress.finish();
        let stopped = match end {
            Ok(end) => end == FitEnd::Stopped,
            Err(FitError::Failed(error)) => return Err(error),
            Err(error) => bail!("{error}"),
        };
        Ok(Outcome { state, stopped })
    }

    /// Shows and records what happened, which began at `began`, and decides whether to go on.
    fn observe(
        &self,
        state: &FitState,
        event: FitEvent,
        began: Instant,
        progress: &mut Progress,
        metrics: &mut Metrics,
    ) -> Result<ControlFlow<()>> {
        match event {
            FitEvent::Step(StepReport {
                loss, grad_norm, ..
            }) => {
                let measured = [
                    (TRAIN_LOSS, loss),
                    (LEARNING_RATE, learning_rate(state.step, self.options)),
                    (GRADIENT_NORM, grad_norm),
                ];
                metrics.write(state.step, &measured)?;
                let tokens = self.options.batch_size * self.options.block_size;
                progress.step(state, began.elapsed(), tokens)?;
                if (self.stop)() {
                    metrics.sync()?;
                    return Ok(ControlFlow::Break(()));
                }
            }
            FitEvent::Evaluated(loss) => {
                metrics.write(state.step, &[(VALIDATION_LOSS, loss)])?;
                metrics.sync()?;
                let step = state.step;
                let Baselines { unigram, bigram } = self.baselines;
                progress.line(&format!(
                    "step {step:>5}  validation loss {loss:.3}  (unigram {unigram:.3}, bigram {bigram:.3})"
                ))?;
            }
            FitEvent::Saved => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// A model in training.
struct InTraining<'a> {
    trainer: &'a Trainer<'a>,
    model: &'a mut Model,
    optimizer: AdamW<f32>,
    /// Zeros between steps.
    gradients: Option<Gradients<f32, Cpu>>,
    /// The number of steps so far.
    step: u64,
}

impl Learner<TokenBatch<Cpu>> for InTraining<'_> {
    type Error = anyhow::Error;

    /// One step: forward, backward, clip, update.
    fn step(&mut self, batch: TokenBatch<Cpu>) -> Result<StepReport> {
        let options = self.trainer.options;
        let step = self.step + 1;
        let gradients = self.gradients.take().context("an earlier step failed")?;
        let logits = self.model.try_forward_mut(batch.ids.traced(gradients))?;
        let loss = model::loss(logits, &batch.targets)?;
        let value = loss.array();
        let mut gradients = loss.try_backward()?;
        // 0 disables clipping.
        let limit = Some(options.grad_clip).filter(|&limit| limit > 0.0);
        let norm = clip_grad_norm(self.model, &mut gradients, limit.unwrap_or(f64::INFINITY))?;
        self.optimizer.config.lr = learning_rate(step, options);
        let updated = self.optimizer.update(self.model, &mut gradients);
        updated.context("cannot update the weights")?;
        ensure!(
            value.is_finite() && norm.is_finite(),
            "the loss is {value} at step {step}, and the norm of the gradients {norm}{}: training has diverged; \
             try a smaller --learning-rate",
            first_damaged(&self.optimizer.state)
        );
        self.model.try_zero_grads(&mut gradients)?;
        self.gradients = Some(gradients);
        self.step = step;
        Ok(StepReport {
            loss: value.into(),
            grad_norm: norm,
            skipped: false,
        })
    }

    /// The mean loss over the blocks for evaluations.
    fn evaluate(&mut self) -> Result<Option<f64>> {
        let mut sum = 0.0;
        let mut tokens = 0;
        for batch in self.trainer.measured.clone() {
            let TokenBatch { ids, targets } = batch?;
            let count = targets.shape().num_elements();
            let logits = self.model.try_forward(ids)?;
            sum += f64::from(model::loss(logits, &targets)?.array()) * count as f64;
            tokens += count;
        }
        Ok(Some(sum / tokens as f64))
    }

    fn save(&mut self, state: &FitState) -> Result<()> {
        let run = self.trainer.run;
        run.save(self.model, &self.optimizer.state, state)
    }
}

/// The name of the first parameter with a gradient that is not finite, which its mean shows.
fn first_damaged(state: &AdamWState<f32>) -> String {
    let mut means = state
        .lists
        .iter()
        .filter_map(|(name, list)| Some((name.strip_suffix(".mean")?, list)));
    let damaged = means.find(|(_, mean)| mean.iter().any(|x| !x.is_finite()));
    damaged.map_or(String::new(), |(name, _)| {
        format!(" (that of {name} for one)")
    })
}

fn adamw(options: &Training) -> AdamWConfig {
    AdamWConfig {
        lr: options.learning_rate,
        betas: [0.9, 0.99],
        weight_decay: options.weight_decay,
        ..AdamWConfig::default()
    }
}

/// A linear warm-up, then half a cosine down to the lowest rate at the last step.
fn learning_rate(step: u64, options: &Training) -> f64 {
    let schedule = Cosine {
        highest: options.learning_rate,
        lowest: options.lowest_rate(),
        warm_up: options.warmup() as u64,
        steps: options.steps as u64,
    };
    schedule.rate(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::Args, records};
    use attn::text::Vocabulary;
    use clap::Parser;
    use std::{cell::Cell, fs, path::Path};

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

    /// Trains in `folder` on text of one repeated word, for at most `most` steps of those of the flags.
    fn train(
        folder: &Path,
        (seed, flags): (u64, &[&str]),
        most: usize,
        resume: bool,
    ) -> Result<(Outcome, Vec<u32>, AdamWState<f32>)> {
        let options = options(flags);
        let block = options.block_size;
        let device = &Cpu::seed_from_u64(seed);
        let corpus = &Corpus::new(&WORD.repeat(100), Vocabulary::characters(WORD)?, block)?;
        let shape = (options.batch_size, block);
        let measured = &Blocks::new(&corpus.validation, shape, device)?;
        let run = &Run::new(folder, 9, block, &corpus.vocabulary);
        let mut model = model::build(device)?;
        let start = match resume {
            true => run.resume(&mut model)?,
            false => Start::default(),
        };
        let steps = Cell::new(0);
        let trainer = Trainer {
            options: &options,
            corpus,
            measured,
            baselines: &Baselines::of(corpus, measured.ranges()),
            device,
            seed,
            run,
            stop: &|| steps.replace(steps.get() + 1) + 1 == most,
        };
        let resumed = resume.then_some(start.state.step);
        let mut metrics = records::metrics(folder, resumed)?;
        let outcome = trainer.run(&mut model, start, &mut metrics)?;
        let last = run.resume(&mut model)?;
        let weights = model.try_forward(device.tensor_from_vec(vec![0, 1, 2, 3], (1, 4)))?;
        let bits = weights.as_vec().iter().map(|x| x.to_bits()).collect();
        Ok((outcome, bits, last.optimizer))
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
            train(folder.path(), (seed, &SMALL), usize::MAX, false)
        };
        let (outcome, bits, _) = of(7)?;
        let evaluations = &outcome.state.evaluations;
        let steps: Vec<u64> = evaluations.iter().map(|(step, _)| *step).collect();
        assert_eq!(steps, [0, 8, 16, 20]);
        assert!(evaluations[3].1 < evaluations[0].1);
        assert_eq!(of(7)?.1, bits);
        assert_ne!(of(8)?.1, bits);
        Ok(())
    }

    #[test]
    fn a_run_that_was_stopped_goes_on_as_if_it_was_not() -> Result<()> {
        let whole = tempfile::tempdir()?;
        let (outcome, bits, optimizer) = train(whole.path(), (7, &SMALL), usize::MAX, false)?;
        assert!(!outcome.stopped);
        // 8 is a step with an evaluation, the others are not; 20 is the last.
        for most in [1, 8, 10, 19] {
            let parts = tempfile::tempdir()?;
            let (first, ..) = train(parts.path(), (7, &SMALL), most, false)?;
            assert!(first.stopped);
            assert_eq!(first.state.step, most as u64);
            let (second, resumed_bits, resumed_optimizer) =
                train(parts.path(), (7, &SMALL), usize::MAX, true)?;
            assert_eq!(second.state, outcome.state);
            assert_eq!(resumed_bits, bits);
            assert_eq!(resumed_optimizer, optimizer);
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
        let refused = train(folder.path(), (7, &flags), usize::MAX, true).err();
        let message = refused.map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("at step 6"), "{message}");
        assert!(message.contains("for one)"), "{message}");
        let saved = attn::checkpoint::Checkpoints::new(folder.path());
        assert_eq!(saved.steps()?, [4]);
        Ok(())
    }
}
