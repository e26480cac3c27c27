//! A character language model, from raw text to samples, on two cores in about five minutes:
//!
//! ```text
//! cargo run --release --example char_lm
//! cargo run --release --example char_lm -- --data FILE --prompt "Once upon"
//! ```
//!
//! The model is a small GPT. Its attention is declared with `attention!` (see `model.rs`), the
//! rest is of `attn::nn`. Each file has one subject: `cli` flags, `text` where the text comes from,
//! `corpus` vocabulary and split, `baseline` what counting achieves, `batch` blocks of text,
//! `model` the network, `train` the loop, `progress` what is shown
//! meanwhile, `weights` files, `sample` the text it writes.

mod baseline;
mod batch;
mod cli;
mod corpus;
mod model;
mod progress;
mod sample;
mod text;
mod train;
mod vocabulary;
mod weights;

use anyhow::{Result, ensure};
use attn::dfdx::prelude::*;
use baseline::Baselines;
use clap::Parser;
use cli::Args;
use corpus::Corpus;
use model::Model;
use progress::{minutes, thousands};
use rand::{SeedableRng, rngs::StdRng};
use sample::Writer;
use std::{
    io::{Write, stdout},
    process::ExitCode,
    time::Instant,
};
use train::{Outcome, Trainer};
use vocabulary::{Token, Vocabulary};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // With the reader of our output gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    args.check()?;
    let text = text::load(args.data.as_deref())?;
    let corpus = Corpus::new(&text, model::VOCAB, args.training.block_size)?;
    let prompt = args.sampling.encode_prompt(&corpus.vocabulary)?;
    let device = Cpu::seed_from_u64(args.seed);
    let mut model = model::build(&device)?;
    if let Some(path) = &args.init_from {
        weights::load(&mut model, path, &corpus.vocabulary)?;
    }
    describe(&model, &corpus)?;
    if args.training.steps == 0 {
        return sample(args, &corpus.vocabulary, &model, &prompt);
    }
    let outcome = train(args, &corpus, &device, &mut model)?;
    sample(args, &corpus.vocabulary, &model, &prompt)?;
    ensure!(
        outcome.last < outcome.initial,
        "the validation loss did not fall: it was {:.3} before training and {:.3} after it",
        outcome.initial,
        outcome.last
    );
    Ok(())
}

/// What there is to train, and to train on.
fn describe(model: &Model, corpus: &Corpus) -> Result<()> {
    let Corpus {
        vocabulary,
        train,
        validation,
    } = corpus;
    let mut out = stdout().lock();
    let parameters = thousands(model.num_trainable_params());
    writeln!(out, "parameters  {parameters}, in {} layers", model::LAYERS)?;
    writeln!(
        out,
        "vocabulary  {} characters: {:?}",
        vocabulary.len(),
        vocabulary.to_text()
    )?;
    let (train, validation) = (thousands(train.len()), thousands(validation.len()));
    writeln!(
        out,
        "split       {train} characters to train on, {validation} to validate\n"
    )?;
    Ok(())
}

/// Trains, says what came of it, and writes the weights.
fn train(args: &Args, corpus: &Corpus, device: &Cpu, model: &mut Model) -> Result<Outcome> {
    let start = Instant::now();
    let options = &args.training;
    let blocks = batch::blocks(corpus.validation.len(), options.block_size);
    let measured = &batch::spread(
        blocks,
        options.eval_iters.saturating_mul(options.batch_size),
    );
    let baselines = &Baselines::of(corpus, measured);
    let rng = StdRng::seed_from_u64(args.seed);
    let mut trainer = Trainer {
        options,
        corpus,
        measured,
        baselines,
        device,
        rng,
    };
    let outcome = trainer.run(model)?;
    let beside = weights::save(model, &args.out, &corpus.vocabulary)?;

    let mut out = stdout().lock();
    let characters = measured.iter().map(ExactSizeIterator::len).sum();
    writeln!(
        out,
        "\nvalidation loss over {} characters",
        thousands(characters)
    )?;
    writeln!(out, "  unigram     {:.3}", baselines.unigram)?;
    writeln!(out, "  bigram      {:.3}", baselines.bigram)?;
    writeln!(out, "  this model  {:.3}", outcome.last)?;
    writeln!(out, "\ntrained in {}", minutes(start.elapsed().as_secs()))?;
    writeln!(out, "wrote {} and {}", args.out.display(), beside.display())?;
    Ok(outcome)
}

/// Writes the samples.
fn sample(args: &Args, vocabulary: &Vocabulary, model: &Model, prompt: &[Token]) -> Result<()> {
    let sampling = args.sampling.sampling(vocabulary.len(), args.seed);
    let mut writer = Writer::new(model, vocabulary, args.training.block_size, sampling)?;
    let mut out = stdout().lock();
    for _ in 0..args.num_samples {
        writeln!(out, "---------------")?;
        write!(out, "{}", vocabulary.decode_all(prompt))?;
        writer.start(prompt)?;
        let characters = writer.by_ref().take(args.sampling.max_new_tokens);
        sample::stream(characters, None, &mut out)?;
    }
    Ok(())
}
