//! Writes with a model that `char_lm` has trained, token by token, or searches for the likeliest continuations:
//!
//! ```text
//! cargo run --release --example char_lm
//! cargo run --release --example generate -- --checkpoint char_lm --prompt "In the beginning"
//! cargo run --release --example generate -- --prompt "And God said" --beams 4 --max-new-tokens 20
//! ```
//!
//! A checkpoint has the weights and the vocabulary. The model is declared in `char_lm`, and the text is not needed.

#[path = "char_lm.rs"]
#[allow(dead_code, reason = "nothing is trained here")]
mod char_lm;

use anyhow::{Context, Result, ensure};
use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    generate::{BeamSearch, Sampling, Session},
    prelude::*,
    text::Vocabulary,
};
use char_lm::{BLOCK, Gpt};
use clap::Parser;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// Writes with a model that the example char_lm has trained.
#[derive(Debug, Parser)]
#[command(allow_negative_numbers = true)]
struct Args {
    /// Folder that char_lm has trained in
    #[arg(long, value_name = "FOLDER", default_value = "char_lm")]
    checkpoint: PathBuf,
    /// Step of the checkpoint [default: that with the lowest validation loss]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Text to continue [default: a new line]
    #[arg(
        long,
        allow_hyphen_values = true,
        hide_default_value = true,
        default_value = "\n",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    prompt: String,
    /// Tokens after the prompt
    #[arg(long, value_name = "N", default_value_t = 500)]
    max_new_tokens: usize,
    /// Stop before this text, or with --beams at this token [default: write on]
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        hide_default_value = true,
        default_value = ""
    )]
    stop: String,
    /// Search for the N likeliest continuations instead of sampling, within one block
    #[arg(long, value_name = "N", conflicts_with = "sampling")]
    beams: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
}

#[derive(Debug, clap::Args)]
#[group(id = "sampling", multiple = true)]
struct SamplingArgs {
    /// Below 1 sampling prefers likely tokens; 0 always takes the likeliest
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    temperature: f64,
    /// Sample from the K likeliest tokens only [default: all]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Sample from the fewest likely tokens whose probabilities have this sum
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Sample from the tokens at least this fraction as likely as the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f64,
    /// Above 1, tokens that are in the text already are less likely
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f64,
    /// Seed of the sample
    #[arg(long, value_name = "N", default_value_t = 1337)]
    seed: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let folder = args.checkpoint.display();
    let checkpoints = Checkpoints::new(&args.checkpoint);
    let found = match (args.step, checkpoints.best()?) {
        (Some(step), _) => checkpoints.at(step),
        (None, Some((best, _))) => Some(best),
        // A run that was stopped before its first evaluation.
        (None, None) => checkpoints.latest()?,
    };
    let found =
        found.with_context(|| format!("char_lm has saved no such checkpoint in {folder}"))?;
    let vocabulary: Vocabulary = found.json("tokenizer.json")?;
    let mut model = Cpu::default().build_module::<Gpt, f32>();
    found.load_model(&mut model, LoadOptions::default())?;
    let session = model.session(BLOCK)?;
    match args.beams {
        Some(beams) => search(&args, beams, &session, &vocabulary),
        None => write(&args, session, &vocabulary),
    }
}

/// Samples, and prints each piece of text when it is generated.
fn write(args: &Args, mut session: Session<f32>, vocabulary: &Vocabulary) -> Result<()> {
    let SamplingArgs {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        seed,
    } = args.sampling;
    let sampling = Sampling {
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        seed,
        vocabulary: None,
    };
    let written = session.write(vocabulary, &args.prompt, sampling)?;
    let mut out = stdout().lock();
    write!(out, "{}", args.prompt)?;
    for piece in written.tokens(args.max_new_tokens).until(&args.stop) {
        write!(out, "{}", piece?)?;
        out.flush()?;
    }
    writeln!(out)?;
    Ok(())
}

/// Prints the likeliest continuations, best first.
fn search(
    args: &Args,
    beams: usize,
    session: &Session<f32>,
    vocabulary: &Vocabulary,
) -> Result<()> {
    ensure!(beams > 0, "--beams is 0: it has to be at least 1");
    let prompt = vocabulary.encode(&args.prompt)?;
    ensure!(
        prompt.len() <= BLOCK,
        "--prompt has {} tokens, but with --beams {BLOCK} are the most",
        prompt.len()
    );
    let stop = vocabulary.encode(&args.stop)?;
    ensure!(stop.len() <= 1, "with --beams, --stop is a single token");
    let search = BeamSearch {
        beams,
        // The last token of a continuation is not processed.
        tokens: args.max_new_tokens.min(BLOCK + 1 - prompt.len()),
        stop: &stop,
        vocabulary: Some(vocabulary.len()),
        ..BeamSearch::default()
    };
    for beam in session.beam_search(&prompt, &search)? {
        let text = args.prompt.clone() + &vocabulary.decode(&beam.tokens)?;
        writeln!(stdout(), "{:>8.3}  {text:?}", beam.log_probability)?;
    }
    Ok(())
}
