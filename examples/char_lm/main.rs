//! A character language model, from raw text to samples, on two cores in about a minute:
//!
//! ```text
//! cargo run --release --example char_lm
//! cargo run --release --example char_lm -- --data FILE --prompt "Once upon"
//! cargo run --release --features tokenizers --example char_lm -- --tokenizer bpe --vocab-size 1024
//! ```
//!
//! The model is a small GPT, declared with `model!` (see `model.rs`). Each file has one subject: `cli` the flags, `text` the
//! source of the text, `tokenizer` and `corpus` text as tokens, `baseline` the losses of counting, `model` the
//! network and its loss, `train` the trainer and the loop, `run` and `saved` checkpoints, `records` the metrics and
//! the report, `interrupt` Ctrl-C, `output` what is printed, `sample` text generation. Begin with `model` and `train`.
//!
//! Each evaluation on the validation split saves a checkpoint. After Ctrl-C or a crash, `--resume` continues to the same bits.
//! `cargo run --release --example generate` generates text from a checkpoint. The folder also has `metrics.jsonl`, the losses by
//! step, `loss.svg`, their chart, and `report.html` with the settings, curves, samples and attention maps.

mod baseline;
mod cli;
mod corpus;
mod interrupt;
mod model;
mod output;
mod records;
mod run;
mod sample;
mod saved;
mod text;
mod tokenizer;
mod train;

use anyhow::{Result, ensure};
use attn::{
    batches::Blocks,
    dfdx::prelude::*,
    text::Vocabulary,
    train::{FitEnd, FitState},
    viz::thousands,
};
use baseline::Baselines;
use clap::Parser;
use cli::Args;
use corpus::Corpus;
use model::Model;
use output::Output;
use records::{End, Records};
use run::Run;
use sample::Writer;
use saved::Saved;
use std::{
    io::{Write, stderr},
    process::ExitCode,
};
use train::{Course, Measured, Trainer};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) if interrupt::pressed() => ExitCode::from(interrupt::STATUS),
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // If the reader of the output has gone, there is nobody to tell.
            let _ = writeln!(stderr(), "error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    args.check()?;
    let text = text::load(args.data.as_deref())?;
    let vocabulary = args.tokens.vocabulary(&text, model::VOCAB)?;
    let corpus = Corpus::new(&text, vocabulary, args.training.block_size)?;
    let vocabulary = &corpus.vocabulary;
    let prompt = args.sampling.encode_prompt(vocabulary)?;
    let model = model::build(&Cpu::seed_from_u64(args.seed))?;
    let mut trainer = train::trainer(model, &args.training);
    let folder = Run::new(
        &args.out,
        args.keep_last,
        args.training.block_size,
        vocabulary,
    );
    // The folder is locked before it is read, so that it does not change meanwhile. `--resume` does not create a folder.
    let trains = args.training.steps > 0 && (!args.resume || args.out.is_dir());
    let _lock = trains.then(|| folder.lock()).transpose()?;
    let mut state = start(args, &folder, vocabulary, &mut trainer)?;
    describe(trainer.model(), &corpus)?;
    interrupt::listen()?;
    if state.step >= args.training.steps as u64 {
        return sample(args, vocabulary, trainer.model(), &prompt).map(drop);
    }
    let measured = &measured(args, &corpus)?;
    let records = Records {
        args,
        corpus: &corpus,
        baselines: &Baselines::of(&corpus, measured.ranges()),
    };
    let mut log = records.log(&state)?;
    let course = Course {
        options: &args.training,
        corpus: &corpus,
        measured,
        seed: args.seed,
        run: &folder,
        stop: &interrupt::pressed,
    };
    let end = match course.train(&mut trainer, &mut state, &mut log) {
        Ok(end) => end,
        Err(error) => {
            // Records are written as far as they exist. If this fails too, the reason why training ended matters more.
            if let Err(also) = records.write(&mut log, trainer.model(), &End::Failed(&error)) {
                writeln!(stderr(), "warning: {also:#}")?;
            }
            return Err(error);
        }
    };
    let out = args.out.display();
    writeln!(
        Output,
        "\ncheckpoints, metrics.jsonl, loss.svg and report.html are in {out}"
    )?;
    if end == FitEnd::Stopped {
        let step = state.step;
        records.write(&mut log, trainer.model(), &End::Stopped(step))?;
        writeln!(Output, "stopped after step {step}: --resume continues")?;
        return Ok(());
    }
    compare(&records, measured, &state)?;
    let samples = sample(args, vocabulary, trainer.model(), &prompt)?;
    records.write(&mut log, trainer.model(), &End::Done(&samples))?;
    check_learned(&state)
}

/// The start of training: new weights, the weights of another run, or a checkpoint of this one.
fn start(
    args: &Args,
    folder: &Run<'_>,
    vocabulary: &Vocabulary,
    trainer: &mut Trainer,
) -> Result<FitState> {
    if args.resume {
        return folder.resume(trainer);
    }
    if args.training.steps > 0 {
        folder.check_new()?;
    }
    if let Some(path) = &args.init_from {
        let saved = Saved::find(path)?;
        saved.check_vocabulary(vocabulary)?;
        saved.load(trainer.model_mut())?;
    }
    Ok(FitState::default())
}

fn check_learned(state: &FitState) -> Result<()> {
    if let [(_, first), .., (_, last)] = &state.evaluations[..] {
        ensure!(
            last < first,
            "the validation loss did not fall: it was {:.3} before training and {:.3} after it",
            first,
            last
        );
    }
    Ok(())
}

/// Prints the model and the text.
fn describe(model: &Model, corpus: &Corpus) -> Result<()> {
    let Corpus {
        vocabulary,
        train,
        validation,
    } = corpus;
    let mut out = Output;
    let parameters = thousands(model.num_trainable_params());
    writeln!(out, "parameters  {parameters}, in {} layers", model::LAYERS)?;
    let unit = vocabulary.unit();
    let count = vocabulary.len();
    write!(out, "vocabulary  {} {unit}s", thousands(count))?;
    if unit == "character" {
        let all: Vec<usize> = (0..count).collect();
        write!(out, ": {:?}", vocabulary.decode(&all)?)?;
    }
    let train = thousands(train.len());
    let validation = thousands(validation.len());
    writeln!(
        out,
        "\nsplit       {train} {unit}s to train on, {validation} to validate\n"
    )?;
    Ok(())
}

/// The blocks of the validation split for evaluations.
fn measured<'a>(args: &Args, corpus: &'a Corpus) -> Result<Measured<'a>> {
    let options = &args.training;
    let shape = (options.batch_size, options.block_size);
    let most = options.eval_iters.saturating_mul(options.batch_size);
    Ok(Blocks::new(&corpus.validation, shape, &Cpu::default())?.spread(most))
}

/// Prints the validation loss beside the baselines.
fn compare(records: &Records<'_>, measured: &Measured<'_>, state: &FitState) -> Result<()> {
    let Some((_, loss)) = state.evaluations.last() else {
        return Ok(());
    };
    let Records {
        corpus, baselines, ..
    } = records;
    let mut out = Output;
    let tokens = measured.ranges().map(|block| block.len()).sum();
    let unit = corpus.vocabulary.unit();
    writeln!(out, "\nvalidation loss over {} {unit}s", thousands(tokens))?;
    writeln!(out, "  unigram     {:.3}", baselines.unigram)?;
    writeln!(out, "  bigram      {:.3}", baselines.bigram)?;
    writeln!(out, "  this model  {loss:.3}")?;
    // The loss per character, which is comparable between tokenizers.
    let characters = corpus.characters(measured.ranges())?;
    if characters != tokens {
        let loss = loss * tokens as f64 / characters as f64;
        writeln!(out, "  per character of text  {loss:.3}")?;
    }
    writeln!(out)?;
    Ok(())
}

/// Prints the samples, and returns them.
fn sample(
    args: &Args,
    vocabulary: &Vocabulary,
    model: &Model,
    prompt: &[usize],
) -> Result<Vec<String>> {
    let sampling = args.sampling.sampling(vocabulary.len(), args.seed);
    let mut writer = Writer::new(model, vocabulary, args.training.block_size, sampling)?;
    let mut out = Output;
    let mut samples = Vec::new();
    for _ in 0..args.num_samples {
        if interrupt::pressed() {
            break;
        }
        let mut sample = vocabulary.decode(prompt)?;
        writeln!(out, "---------------")?;
        write!(out, "{sample}")?;
        writer.start(prompt)?;
        let pieces = writer.by_ref().take(args.sampling.max_new_tokens);
        let pieces = pieces.take_while(|_| !interrupt::pressed());
        let kept = pieces.inspect(|piece| sample.extend(piece.as_deref().ok()));
        sample::stream(kept, None, &mut out)?;
        samples.push(sample);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attn::checkpoint::Checkpoints;
    use std::{ffi::OsStr, fs};

    #[test]
    fn a_run_is_refused_while_another_has_the_folder_and_changes_nothing() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("text");
        let out = folder.path().join("run");
        fs::write(&data, "In the beginning ".repeat(40))?;
        let _other = Checkpoints::new(&out).lock_run()?;
        let metrics = out.join("metrics.jsonl");
        fs::write(&metrics, "{\"step\":1}\n")?;
        for flag in ["--keep-last=2", "--resume"] {
            let flags = ["char_lm", "--steps=1", "--block-size=8", flag, "--data"];
            let mut line = flags.map(OsStr::new).to_vec();
            line.extend([data.as_os_str(), OsStr::new("--out"), out.as_os_str()]);
            let args = Args::parse_from(line);
            let refused = run(&args).err().map(|error| format!("{error:#}"));
            let message = refused.unwrap_or_default();
            assert!(
                message.contains("another run is using this folder"),
                "{message}"
            );
            assert_eq!(fs::read_to_string(&metrics)?, "{\"step\":1}\n");
        }
        Ok(())
    }
}
