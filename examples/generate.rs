//! Generates text from a checkpoint of `char_lm`, printed token by token:
//!
//! ```text
//! cargo run --release --example char_lm
//! cargo run --release --example generate -- --checkpoint char_lm --prompt "In the beginning"
//! ```
//!
//! A checkpoint is self-contained: `config.json` has the sizes of the model, which must be those of the declaration here, and
//! `tokenizer.json` its tokens. The training text is not needed.

#[path = "char_lm/model.rs"]
#[allow(dead_code, reason = "nothing is trained here")]
mod model;
#[path = "char_lm/sample.rs"]
mod sample;
#[path = "char_lm/saved.rs"]
#[allow(dead_code, reason = "nothing is trained here")]
mod saved;

use anyhow::{Result, ensure};
use attn::{dfdx::prelude::*, generate::BeamSearch};
use clap::Parser;
use model::Model;
use sample::Writer;
use saved::Saved;
use std::{
    io::{Write, stderr, stdout},
    path::PathBuf,
    process::ExitCode,
};

/// Generates text with a model that the example char_lm trained.
#[derive(Debug, Parser)]
#[command(name = "generate", allow_negative_numbers = true)]
struct Args {
    /// A checkpoint, or a folder of checkpoints, of which the best one is used
    #[arg(long, value_name = "FOLDER", default_value = "char_lm")]
    checkpoint: PathBuf,

    /// Seed of the samples
    #[arg(long, value_name = "N", default_value_t = 1337)]
    seed: u64,

    /// Stop before this text, or with --beams at this token
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Option<String>,

    /// Instead of sampling, search the N likeliest continuations, within one block
    #[arg(long, value_name = "N", conflicts_with_all = ["temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"])]
    beams: Option<usize>,

    #[command(flatten)]
    sampling: sample::Flags,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // If the reader of the output has gone, there is nobody to tell.
            let _ = writeln!(stderr(), "error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    args.sampling.check()?;
    ensure!(
        args.stop.as_deref() != Some(""),
        "--stop is empty: leave it away to write on"
    );
    let saved = Saved::find(&args.checkpoint)?;
    let prompt = args.sampling.encode_prompt(&saved.vocabulary)?;
    let mut model = model::build(&Cpu::default())?;
    saved.load(&mut model)?;
    match args.beams {
        Some(beams) => search(args, beams, &saved, &model, &prompt),
        None => stream(args, &saved, &model, &prompt),
    }
}

/// Samples, and prints each token when it is generated.
fn stream(args: &Args, saved: &Saved, model: &Model, prompt: &[usize]) -> Result<()> {
    let Saved {
        vocabulary, config, ..
    } = saved;
    let sampling = args.sampling.sampling(vocabulary.len(), args.seed);
    let mut writer = Writer::new(model, vocabulary, config.block_size, sampling)?;
    let mut out = stdout().lock();
    write!(out, "{}", vocabulary.decode(prompt)?)?;
    out.flush()?;
    writer.start(prompt)?;
    let pieces = writer.take(args.sampling.max_new_tokens);
    sample::stream(pieces, args.stop.as_deref(), &mut out)
}

/// Prints the likeliest continuations, best first.
fn search(args: &Args, beams: usize, saved: &Saved, model: &Model, prompt: &[usize]) -> Result<()> {
    ensure!(beams > 0, "--beams is 0: it has to be at least 1");
    let vocabulary = &saved.vocabulary;
    let block = saved.config.block_size;
    ensure!(
        prompt.len() <= block,
        "--prompt has {} tokens, but with --beams {block} are the most",
        prompt.len()
    );
    let stop = vocabulary.encode(args.stop.as_deref().unwrap_or_default())?;
    ensure!(stop.len() <= 1, "with --beams, --stop is a single token");
    let search = BeamSearch {
        beams,
        // The last token of a continuation is not processed.
        tokens: args.sampling.max_new_tokens.min(block + 1 - prompt.len()),
        stop: &stop,
        vocabulary: Some(vocabulary.len()),
        ..BeamSearch::default()
    };
    let found = model.session(block)?.beam_search(prompt, &search)?;
    let mut out = stdout().lock();
    for beam in found {
        let text = vocabulary.decode(prompt)? + &vocabulary.decode(&beam.tokens)?;
        writeln!(out, "{:>8.3}  {text:?}", beam.log_probability)?;
    }
    Ok(())
}
