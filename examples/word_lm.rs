//! `char_lm` with pieces of words: what changes for a larger text, in the steps of GPT-2.
//!
//! - Byte pairs are trained on the text, which is then a file of numbers. Training reads blocks of it from the disk.
//! - The model is as Llama's: rotary positions, RMS norms, a gated feed-forward layer.
//! - A loss per piece says little, because pieces have any length. So a table compares the losses per piece and per character, and the
//!   perplexities, with those of counting.
//!
//! ```text
//! cargo run --release --features tokenizers --example word_lm
//! cargo run --release --features tokenizers --example word_lm -- --resume --prompt "And God said"
//! ```

mod bible;
mod counting;

use anyhow::{Context, Result};
use attn::{
    batches::{Blocks, RandomBlocks, TokenFile, TokenWidth, Tokens},
    checkpoint::Checkpoints,
    generate::Sampling,
    prelude::*,
    text::Vocabulary,
    train::{AdamWConfig, Cosine, FitConfig},
    viz::TrainingLog,
};
use clap::Parser;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const VOCAB: usize = 1024;
const BLOCK: usize = 64;
const BATCH: usize = 8;
const SEED: u64 = 1337;

model! {
    struct Gpt<layers = 3, heads = 4, d_model = 64>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens);
        repeat layers {
            x += attention::<heads, mask = causal, position = rope, bias = false>(rms_norm(x));
            x += feed_forward::<{ 3 * d_model }, activation = swiglu, bias = false>(rms_norm(x));
        }
        linear::<VOCAB, bias = false>(rms_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

/// Trains a small GPT on the pieces of a text's words, and lets it write.
#[derive(Debug, Parser)]
struct Args {
    /// Text to learn from, in UTF-8 [default: the King James Bible]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder of the numbers, the checkpoints and the report
    #[arg(long, default_value = "word_lm")]
    out: PathBuf,
    /// Go on from the latest checkpoint in the folder
    #[arg(long)]
    resume: bool,
    /// Training steps
    #[arg(long, default_value_t = 3000)]
    steps: u64,
    /// Steps between two evaluations on the held-out text
    #[arg(long, default_value_t = 500)]
    eval_interval: u64,
    /// Text to continue in the end
    #[arg(long, default_value = "In the beginning")]
    prompt: String,
}

fn main() -> Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let args = Args::parse();
    let device = Cpu::seed_from_u64(SEED);
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;

    let run = Checkpoints::new(&args.out).keep_last(2).run(args.resume)?;
    let vocab = match run.json("tokenizer.json")? {
        Some(saved) => saved,
        None => prepare(&args)?,
    };
    let [train, held_out] = files(&args.out).map(|path| TokenFile::open(path, TokenWidth::U16));
    let (train, held_out) = (train?, held_out?);
    let blocks = RandomBlocks::new(&train, (BATCH, BLOCK), SEED, &device)
        .context("the text is too short")?;
    let measured = Blocks::new(&held_out, (BATCH, BLOCK), &device)?.spread(40 * BATCH);
    let pairs = pairs(&held_out, &measured)?;
    let [by_token, by_pair] = counting::losses(&read(&train)?, &pairs, VOCAB);

    let adamw = AdamWConfig {
        weight_decay: 0.1,
        ..AdamWConfig::default()
    };
    let rates = Cosine {
        highest: 3e-3,
        lowest: 3e-4,
        warm_up: 100,
        steps: args.steps,
    };
    let model = device.build_module::<Gpt, f32>();
    let mut trainer = model.trainer(adamw).schedule(rates).clip(1.0);
    let mut state = run.load(&mut trainer)?;
    let mut log = TrainingLog::replacing(&args.out, &state)?
        .work(BATCH * BLOCK, "pieces")
        .title("Loss, in nats per piece")
        .baseline("pieces counted", by_token)
        .baseline("pairs counted", by_pair);
    trainer
        .fit(FitConfig {
            steps: args.steps,
            evaluate_every: args.eval_interval,
            ..FitConfig::default()
        })
        .evaluate(|trainer| trainer.try_evaluate_all(measured.clone().pairs()))
        .save(|trainer, state| run.save(state, trainer.contents().json("tokenizer.json", &vocab)))
        .observe(|state, event| log.observe(state, event))
        .stop(&STOP)
        .run(blocks.at(state.step).pairs(), &mut state)?;

    let targets: Vec<usize> = pairs.iter().map(|(_, token)| *token).collect();
    let characters = vocab.decode(&targets)?.chars().count();
    let loss = trainer.try_evaluate_all(measured.clone().pairs())?;
    let rows = [
        ("pieces counted", by_token),
        ("pairs counted", by_pair),
        ("this model", loss),
    ];
    let rows = rows.map(|(name, loss)| {
        let per_character = loss * targets.len() as f64 / characters as f64;
        let perplexity = loss.exp();
        (
            name,
            format!("{loss:>8.3} {perplexity:>11.1} {per_character:>14.3}"),
        )
    });
    let report = log.report("word_lm")?.table(
        "Loss per piece, perplexity, loss per character",
        rows.clone(),
    );
    report.write(args.out.join("report.html"))?;
    writeln!(stdout(), "\n{:16}per piece  perplexity  per character", "")?;
    for (name, numbers) in rows {
        writeln!(stdout(), "{name:16}{numbers}")?;
    }

    let mut session = trainer.model().session(BLOCK)?;
    let writing = session.write(&vocab, &args.prompt, Sampling::with_temperature(0.8))?;
    write!(stdout(), "\n{}", args.prompt)?;
    for piece in writing.tokens(200) {
        write!(stdout(), "{}", piece?)?;
        stdout().flush()?;
    }
    writeln!(stdout())?;
    Ok(())
}

/// The text as two files of numbers: nine tenths to learn from, and the last tenth.
fn files(folder: &Path) -> [PathBuf; 2] {
    ["train.bin", "held_out.bin"].map(|name| folder.join(name))
}

/// Finds the pieces of the text, and writes the files. nanoGPT: `prepare.py`.
fn prepare(args: &Args) -> Result<Vocabulary> {
    let text = bible::text(args.data.as_deref())?;
    writeln!(stdout(), "finding {VOCAB} pieces in {} bytes", text.len())?;
    let vocab = Vocabulary::byte_pairs(&text, VOCAB)?;
    let tokens = vocab.encode(&text)?;
    let (train, held_out) = tokens.split_at(tokens.len() * 9 / 10);
    for (path, tokens) in files(&args.out).iter().zip([train, held_out]) {
        TokenFile::write(path, TokenWidth::U16, tokens.iter().copied())?;
    }
    Ok(vocab)
}

fn read(file: &TokenFile) -> Result<Vec<usize>> {
    let mut tokens = vec![0; file.len()];
    file.read(0, &mut tokens)?;
    Ok(tokens)
}

/// What the model is measured on: each token, with the one before it.
fn pairs(file: &TokenFile, measured: &Blocks<&TokenFile, Cpu>) -> Result<Vec<(usize, usize)>> {
    let tokens = read(file)?;
    let blocks = measured
        .ranges()
        .flat_map(|block| tokens[block.start..=block.end].windows(2));
    Ok(blocks.map(|pair| (pair[0], pair[1])).collect())
}
