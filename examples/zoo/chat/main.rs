//! Talks to a network of the gallery, whose folder is that of a published checkpoint:
//!
//! ```text
//! cargo run --release -p attn-zoo --features tokenizers --example chat -- --model SmolLM2-135M-Instruct
//! ```
//!
//! An answer is written while it is chosen, and Ctrl-C ends it. The session keeps the keys and values of the conversation, so a turn reads the new
//! tokens only. A model without a chat template continues what is typed.
//!
//! Sizes are a part of a declaration, so the program is compiled for those in `networks.rs`. For others it prints what to paste there.

mod conversation;
mod folder;
mod networks;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use clap::Parser;
use conversation::{Conversation, Options};
use folder::Folder;
use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::PathBuf,
    process,
    sync::atomic::{AtomicBool, Ordering},
};

/// Talks to a published model.
#[derive(Debug, Parser)]
struct Args {
    /// Folder with config.json, tokenizer.json and model.safetensors
    #[arg(long, value_name = "FOLDER")]
    model: PathBuf,
    /// The system prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Below 1 likely tokens are preferred; 0 always takes the likeliest [default: that of generation_config.json]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Sample from the fewest likely tokens whose probabilities have this sum [default: that of generation_config.json]
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_tokens: usize,
    /// Tokens of the conversation, for which there is memory
    #[arg(long, value_name = "N", default_value_t = 2048)]
    context: usize,
    /// Seed of the answers
    #[arg(long, value_name = "N", default_value_t = 1337)]
    seed: u64,
}

/// Whether an answer is being written, which Ctrl-C ends. Otherwise it ends the program.
static ANSWERING: AtomicBool = AtomicBool::new(false);

fn main() -> Result<()> {
    let args = Args::parse();
    ctrlc::set_handler(|| {
        if !ANSWERING.swap(false, Ordering::Relaxed) {
            process::exit(130);
        }
    })?;
    let prompt = if io::stdin().is_terminal() { "> " } else { "" };
    talk(&args, prompt, io::stdin().lock(), io::stdout(), &ANSWERING)
}

/// Answers each line of the input. An answer ends when `answering` becomes false.
fn talk(
    args: &Args,
    prompt: &str,
    input: impl BufRead,
    mut output: impl Write,
    answering: &AtomicBool,
) -> Result<()> {
    let mut conversation = begin(args)?;
    let mut lines = input.lines();
    loop {
        write!(output, "{prompt}")?;
        output.flush()?;
        let Some(line) = lines.next().transpose()? else {
            return Ok(());
        };
        if line.trim().is_empty() {
            continue;
        }
        answering.store(true, Ordering::Relaxed);
        let answered = conversation.answer(&line, |piece| {
            write!(output, "{piece}")?;
            output.flush()?;
            Ok(answering.load(Ordering::Relaxed))
        });
        answering.store(false, Ordering::Relaxed);
        answered?;
        writeln!(output)?;
    }
}

/// A conversation in which nothing was said.
fn begin(args: &Args) -> Result<Conversation> {
    let folder = Folder::open(&args.model)?;
    let mut sampling = folder.sampling();
    sampling.temperature = args.temperature.unwrap_or(sampling.temperature);
    sampling.top_p = args.top_p.unwrap_or(sampling.top_p);
    sampling.seed = args.seed;
    if args.system.is_some() && folder.template.is_none() {
        bail!(
            "{} has no chat template, so there is no place for --system",
            args.model.display()
        );
    }
    let session = networks::session(&folder, args.context)
        .with_context(|| args.model.display().to_string())?;
    let options = Options {
        system: args.system.clone(),
        sampling,
        max_tokens: args.max_tokens,
    };
    Ok(Conversation::new(session, folder, options))
}
