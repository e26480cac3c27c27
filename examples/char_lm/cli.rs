//! The flags, with nanoGPT's names, and the checks before any work starts.

use crate::{
    model::{BLOCK, LAYERS, VOCAB},
    sample, tokenizer,
};
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::path::{Path, PathBuf};

/// The maximum number of tokens in one batch: with more, the activations would take gigabytes.
const MOST_TOKENS_PER_BATCH: usize = 1 << 14;

/// Trains a small GPT on text, one token at a time, and samples from it.
///
/// Without --data it reads the King James Bible. Losses are in nats per token.
#[derive(Debug, Parser)]
#[command(name = "char_lm", allow_negative_numbers = true)]
pub(crate) struct Args {
    /// Text to learn from, in UTF-8 [default: the King James Bible]
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) tokens: tokenizer::Options,

    /// Folder of the checkpoints
    #[arg(long, value_name = "FOLDER", default_value = "char_lm")]
    pub(crate) out: PathBuf,

    /// Checkpoints to keep, beside the best one
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) keep_last: usize,

    /// Continue from the latest checkpoint in --out, to the same bits as an uninterrupted run with the same flags
    #[arg(long, conflicts_with = "init_from")]
    pub(crate) resume: bool,

    /// Start from the weights of a checkpoint, or of the best one in a folder; with --steps 0 only sample from them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) init_from: Option<PathBuf>,

    /// Seed of the weights, of the batches and of the samples
    #[arg(long, value_name = "N", default_value_t = 1337)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) training: Training,

    #[command(flatten)]
    pub(crate) sampling: sample::Flags,

    /// Samples to draw
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Sampling")]
    pub(crate) num_samples: usize,
}

/// The options of training.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct Training {
    /// Training steps
    #[arg(long, alias = "max-iters", value_name = "N", default_value_t = 5000)]
    pub(crate) steps: usize,

    /// Blocks of text in one batch
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) batch_size: usize,

    /// Tokens in one block, the maximum context of the model
    #[arg(long, value_name = "N", default_value_t = BLOCK)]
    pub(crate) block_size: usize,

    /// Batches in one step, whose gradients are accumulated
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) gradient_accumulation_steps: usize,

    /// Highest learning rate, reached after the warm-up
    #[arg(long, value_name = "RATE", default_value_t = 3e-3)]
    pub(crate) learning_rate: f64,

    /// Learning rate at the end of the cosine decay [default: a tenth of the highest]
    #[arg(long, value_name = "RATE")]
    pub(crate) min_lr: Option<f64>,

    /// Steps over which the learning rate rises from zero [default: 100, or a tenth of a short run]
    #[arg(long, alias = "warmup-iters", value_name = "N")]
    pub(crate) warmup_steps: Option<usize>,

    /// Weight decay, decoupled from the gradient (AdamW)
    #[arg(long, value_name = "RATE", default_value_t = 0.1)]
    pub(crate) weight_decay: f64,

    /// Largest norm of all gradients together; 0 disables clipping
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    pub(crate) grad_clip: f64,

    /// Steps between two evaluations on the validation split
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) eval_interval: usize,

    /// Batches of an evaluation, spread evenly over the split
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub(crate) eval_iters: usize,

    /// Steps between two lines of progress, where no progress bar can be drawn
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) log_interval: usize,
}

impl Args {
    /// Checks the flags, before minutes are spent on a run.
    pub(crate) fn check(&self) -> Result<()> {
        self.tokens.check(VOCAB)?;
        self.training.check()?;
        self.sampling.check()?;
        ensure!(
            self.training.steps > 0 || self.resume || self.init_from.is_some(),
            "--steps 0 trains nothing: ask for at least 1, or give trained weights with --init-from"
        );
        check_writable(&self.out)
    }
}

impl Training {
    /// The learning rate at the end of the decay.
    pub(crate) fn lowest_rate(&self) -> f64 {
        self.min_lr.unwrap_or(self.learning_rate / 10.0)
    }

    /// The number of steps of the warm-up.
    pub(crate) fn warmup(&self) -> usize {
        self.warmup_steps.unwrap_or(100.min(self.steps / 10))
    }

    /// The number of tokens that a step learns from.
    pub(crate) fn tokens_per_step(&self) -> usize {
        self.gradient_accumulation_steps * self.batch_size * self.block_size
    }

    fn check(&self) -> Result<()> {
        at_least_one("--batch-size", self.batch_size)?;
        at_least_one(
            "--gradient-accumulation-steps",
            self.gradient_accumulation_steps,
        )?;
        at_least_one("--block-size", self.block_size)?;
        at_least_one("--eval-interval", self.eval_interval)?;
        at_least_one("--eval-iters", self.eval_iters)?;
        at_least_one("--log-interval", self.log_interval)?;
        ensure!(
            self.block_size <= BLOCK,
            "--block-size {} is more than the {BLOCK} positions this model was compiled for \
             (BLOCK in examples/char_lm/model.rs)",
            self.block_size
        );
        let tokens = self.batch_size.saturating_mul(self.block_size);
        ensure!(
            tokens <= MOST_TOKENS_PER_BATCH,
            "--batch-size {} × --block-size {} is too much for one batch: \
             {LAYERS} layers of it have to fit in memory, so take at most {} blocks of this size, \
             and several batches with --gradient-accumulation-steps",
            self.batch_size,
            self.block_size,
            MOST_TOKENS_PER_BATCH / self.block_size
        );
        self.check_rates()
    }

    fn check_rates(&self) -> Result<()> {
        let rate = self.learning_rate;
        ensure!(
            rate > 0.0 && rate <= 1.0,
            "--learning-rate {rate} is not between 0 and 1; AdamW usually wants 1e-4 to 1e-2"
        );
        let lowest = self.lowest_rate();
        ensure!(
            (0.0..=rate).contains(&lowest),
            "--min-lr {lowest} is not between 0 and the learning rate {rate}"
        );
        let decay = self.weight_decay;
        ensure!(
            (0.0..=1.0).contains(&decay),
            "--weight-decay {decay} is not between 0 and 1"
        );
        let clip = self.grad_clip;
        ensure!(
            clip >= 0.0 && clip.is_finite(),
            "--grad-clip {clip} is not a norm: give 0 for no clipping, or a positive number"
        );
        Ok(())
    }
}

fn at_least_one(flag: &str, value: usize) -> Result<()> {
    ensure!(value > 0, "{flag} is 0: it has to be at least 1");
    Ok(())
}

/// Checks that the folder is writable, so that a misspelt path does not lose minutes of training.
fn check_writable(out: &Path) -> Result<()> {
    let name = out.display();
    ensure!(
        out.is_dir() || !out.exists(),
        "--out {name} is a file, not a folder"
    );
    let folder = match out.parent() {
        _ if out.is_dir() => out,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    tempfile::tempfile_in(folder)
        .map(drop)
        .with_context(|| format!("cannot write checkpoints to --out {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(flags: &[&str]) -> String {
        let args = Args::parse_from(["char_lm"].iter().chain(flags));
        match args.check() {
            Ok(()) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn defaults_are_accepted() {
        assert_eq!(refusal(&[]), "");
    }

    #[test]
    fn sizes_of_zero_are_refused_by_name() {
        for flag in [
            "--batch-size",
            "--gradient-accumulation-steps",
            "--block-size",
            "--eval-interval",
            "--eval-iters",
            "--log-interval",
            "--top-k",
            "--steps",
        ] {
            let message = refusal(&[flag, "0"]);
            assert!(message.starts_with(flag), "{flag}: {message}");
        }
    }

    #[test]
    fn a_block_beyond_the_model_is_refused() {
        let message = refusal(&["--block-size", &(BLOCK + 1).to_string()]);
        assert!(message.contains(&format!("{BLOCK} positions")), "{message}");
    }

    #[test]
    fn a_batch_whose_size_overflows_is_refused() {
        let message = refusal(&["--batch-size", &usize::MAX.to_string()]);
        assert!(message.contains("too much for one batch"), "{message}");
    }

    #[test]
    fn rates_that_are_no_rates_are_refused() {
        for rate in ["0", "-1", "2", "NaN", "inf"] {
            let message = refusal(&[&format!("--learning-rate={rate}")]);
            assert!(message.starts_with("--learning-rate"), "{rate}: {message}");
        }
        assert!(refusal(&["--temperature=-1"]).starts_with("--temperature"));
        assert!(refusal(&["--temperature=NaN"]).starts_with("--temperature"));
        assert!(refusal(&["--top-p=2"]).starts_with("--top-p is 2"));
        assert!(refusal(&["--min-p=-1"]).starts_with("--min-p is -1"));
        assert!(refusal(&["--repetition-penalty=0"]).starts_with("--repetition-penalty is 0"));
        assert!(refusal(&["--min-lr=1"]).starts_with("--min-lr"));
        assert!(refusal(&["--weight-decay=-0.1"]).starts_with("--weight-decay"));
        assert!(refusal(&["--grad-clip=-1"]).starts_with("--grad-clip"));
    }

    #[test]
    fn checkpoints_have_to_go_into_a_folder_that_can_be_made() {
        assert!(refusal(&["--out", "no/such/folder"]).contains("cannot write"));
        assert!(refusal(&["--out", "Cargo.toml"]).contains("is a file"));
        assert_eq!(refusal(&["--out", "."]), "");
    }
}
