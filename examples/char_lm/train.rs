//! The training loop: AdamW with a warm-up and a cosine decay, and a look at the validation split
//! now and then.

use crate::{
    baseline::Baselines,
    batch::Batch,
    cli::Training,
    corpus::Corpus,
    model::{self, Model},
    progress::Progress,
};
use anyhow::{Context, Result, ensure};
use attn::{
    dfdx::prelude::*,
    train::{AdamW, AdamWConfig, Cosine, Schedule, clip_grad_norm},
};
use rand::rngs::StdRng;
use std::{ops::Range, time::Instant};

/// Everything that training works with.
pub(crate) struct Trainer<'a> {
    pub(crate) options: &'a Training,
    pub(crate) corpus: &'a Corpus,
    /// The blocks of the validation split that are measured on, and what counting achieves there.
    pub(crate) measured: &'a [Range<usize>],
    pub(crate) baselines: &'a Baselines,
    pub(crate) device: &'a Cpu,
    pub(crate) rng: StdRng,
}

/// Validation losses at the two ends of training.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) initial: f64,
    pub(crate) last: f64,
}

impl Trainer<'_> {
    /// Trains `model` for as many steps as the options say.
    pub(crate) fn run(&mut self, model: &mut Model) -> Result<Outcome> {
        let options = self.options;
        let characters = options.batch_size * options.block_size;
        let mut progress = Progress::new(options.steps, options.log_interval);
        let mut optimizer = AdamW::new(adamw(options));
        let mut gradients = model.try_alloc_grads()?;
        let initial = self.report(model, 0, &progress)?;
        let mut last = initial;
        for step in 1..=options.steps {
            let start = Instant::now();
            optimizer.config.lr = learning_rate(step, options);
            let (loss, after) = self.step(model, &mut optimizer, gradients)?;
            gradients = after;
            ensure!(
                loss.is_finite(),
                "the loss is {loss} at step {step}: training has diverged; \
                 try a smaller --learning-rate"
            );
            progress.step(step, loss.into(), start.elapsed(), characters)?;
            if step % options.eval_interval == 0 || step == options.steps {
                last = self.report(model, step, &progress)?;
            }
        }
        progress.finish();
        Ok(Outcome { initial, last })
    }

    /// One step: forward, backward, clip, update. The gradients come back as zeros.
    fn step(
        &mut self,
        model: &mut Model,
        optimizer: &mut AdamW<f32>,
        gradients: Gradients<f32, Cpu>,
    ) -> Result<(f32, Gradients<f32, Cpu>)> {
        let size = (self.options.batch_size, self.options.block_size);
        let batch = Batch::random(&self.corpus.train, size, &mut self.rng, self.device)?;
        let logits = model.try_forward_mut(batch.inputs.traced(gradients))?;
        let loss = model::loss(logits, &batch.targets)?;
        let value = loss.array();
        let mut gradients = loss.try_backward()?;
        // With 0, gradients are left alone.
        if self.options.grad_clip > 0.0 {
            clip_grad_norm(model, &mut gradients, self.options.grad_clip)?;
        }
        optimizer
            .update(model, &mut gradients)
            .context("cannot update the weights")?;
        model.try_zero_grads(&mut gradients)?;
        Ok((value, gradients))
    }

    /// Measures on the validation split and says so.
    fn report(&self, model: &Model, step: usize, progress: &Progress) -> Result<f64> {
        let loss = self.evaluate(model)?;
        let Baselines { unigram, bigram } = self.baselines;
        progress.line(&format!(
            "step {step:>5}  validation loss {loss:.3}  (unigram {unigram:.3}, bigram {bigram:.3})"
        ))?;
        Ok(loss)
    }

    /// The mean loss over the blocks that are measured.
    fn evaluate(&self, model: &Model) -> Result<f64> {
        let (mut sum, mut characters) = (0.0, 0);
        // The last block may be shorter than the rest, and a batch has one length.
        for equal in self.measured.chunk_by(|a, b| a.len() == b.len()) {
            for blocks in equal.chunks(self.options.batch_size) {
                let batch = Batch::of(&self.corpus.validation, blocks, self.device)?;
                let logits = model.try_forward(batch.inputs)?;
                let count = batch.targets.shape().num_elements();
                sum += f64::from(model::loss(logits, &batch.targets)?.array()) * count as f64;
                characters += count;
            }
        }
        Ok(sum / characters as f64)
    }
}

fn adamw(options: &Training) -> AdamWConfig {
    AdamWConfig {
        lr: options.learning_rate,
        betas: [0.9, 0.99],
        weight_decay: options.weight_decay,
        ..AdamWConfig::default()
    }
}

/// Rises over the warm-up, then follows half a cosine down to the lowest rate at the last step.
fn learning_rate(step: usize, options: &Training) -> f64 {
    let schedule = Cosine {
        highest: options.learning_rate,
        lowest: options.lowest_rate(),
        warm_up: options.warmup() as u64,
        steps: options.steps as u64,
    };
    schedule.rate(step as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{batch, cli::Args};
    use clap::Parser;
    use rand::SeedableRng;

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

    /// Trains a few steps on text of one repeated word.
    fn train(seed: u64) -> Result<Outcome> {
        let options = options(&["--steps=4", "--batch-size=2", "--block-size=8"]);
        let corpus = Corpus::new(&"begat ".repeat(100), model::VOCAB, 8)?;
        let measured = &batch::blocks(corpus.validation.len(), 8);
        let baselines = &Baselines::of(&corpus, measured);
        let device = &Cpu::seed_from_u64(seed);
        let rng = StdRng::seed_from_u64(seed);
        let (options, corpus) = (&options, &corpus);
        let mut trainer = Trainer {
            options,
            corpus,
            measured,
            baselines,
            device,
            rng,
        };
        trainer.run(&mut model::build(device)?)
    }

    #[test]
    fn training_learns_and_is_repeated_by_its_seed() -> Result<()> {
        let outcome = train(7)?;
        assert!(outcome.last < outcome.initial);
        assert_eq!(train(7)?, outcome);
        assert_ne!(train(8)?, outcome);
        Ok(())
    }
}
