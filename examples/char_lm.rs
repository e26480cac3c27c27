//! A language model of characters, from raw text to a sample, to be read from top to bottom. On two cores it takes about a minute:
//!
//! ```text
//! cargo run --release --example char_lm
//! cargo run --release --example char_lm -- --data FILE --out FOLDER
//! ```
//!
//! Each evaluation saves a checkpoint, and so does Ctrl-C: `--resume` goes on to the same bits. `generate` writes with a checkpoint. Several
//! processes train it together with `mpirun --bind-to none -n 2 cargo run --release --features mpi --example char_lm`.

mod bible;

use anyhow::{Context, Result};
use attn::{
    batches::{Blocks, RandomBlocks},
    checkpoint::Checkpoints,
    generate::{Choice, Sampling, Session, WeightFormat},
    prelude::*,
    text::Vocabulary,
    train::{AdamWConfig, Cosine, FitConfig, FitEnd, processes},
    viz::{Labels, TrainingLog, Viewer},
};
use clap::Parser;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const VOCAB: usize = 256;
pub(crate) const BLOCK: usize = 64;
const BATCH: usize = 8;
const SEED: u64 = 1337;
const DROPOUT: f64 = 0.0; // 0.1 or 0.2 if the text is short: the model would learn it by heart.

model! {
    /// A GPT. A position attends to itself and to those before it, so each of a block learns to predict what comes next.
    pub(crate) struct Gpt<layers = 3, heads = 4, d_model = 64>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<BLOCK, d_model>(tokens);
        repeat layers {
            x += dropout::<DROPOUT>(attention::<heads, mask = causal>(layer_norm(x)));
            x += dropout::<DROPOUT>(feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x)));
        }
        linear::<VOCAB, bias = false>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

/// Trains a small GPT on a text, character by character, and lets it write.
#[derive(Debug, Parser)]
struct Args {
    /// Text to learn from, in UTF-8 [default: the King James Bible]
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder of the checkpoints and of the report
    #[arg(long, default_value = "char_lm")]
    out: PathBuf,
    /// Go on from the latest checkpoint in the folder
    #[arg(long)]
    resume: bool,
    /// Training steps
    #[arg(long, default_value_t = 5000)]
    steps: u64,
    /// Steps between two evaluations on the held-out text
    #[arg(long, default_value_t = 500)]
    eval_interval: u64,
    /// Send gradients to the other processes in bf16
    #[arg(long)]
    bf16_gradients: bool,
}

/// The perplexity of the first blocks of a text.
fn perplexity(session: &mut Session<f32>, text: &[usize]) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for block in text.chunks_exact(BLOCK).take(100) {
        session.reset();
        let logits = session.prefill_all(block)?;
        for (place, next) in block[1..].iter().enumerate() {
            sum -= Choice::new(*next, logits.row(place), 0)?.log_probability;
            count += 1;
        }
    }
    Ok((sum / f64::from(count)).exp())
}

fn main() -> Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let args = Args::parse();
    let device = Cpu::seed_from_u64(SEED);
    let mut ranks = processes()?;
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;

    // The text as numbers: a resumed run has saved what they mean. The last tenth is held out.
    let text = bible::text(args.data.as_deref())?;
    let new = Vocabulary::characters_or_bytes(&text, VOCAB)?;
    let run = Checkpoints::new(&args.out).keep_last(2);
    let run = run.run_across(&mut ranks, args.resume)?;
    let vocab = run.json("tokenizer.json")?.unwrap_or(new);
    let tokens = vocab.encode(&text)?;
    let (train, held_out) = tokens.split_at(tokens.len() * 9 / 10);

    // The model, and how it learns.
    let adamw = AdamWConfig::default();
    let rates = Cosine {
        highest: 3e-3,
        lowest: 3e-4,
        warm_up: 100,
        steps: args.steps,
    };
    let model = device.build_module::<Gpt, f32>();
    let trainer = model.trainer(adamw).schedule(rates).clip(1.0);
    let trainer = trainer.across(ranks);
    let mut trainer = trainer.bf16_gradients(args.bf16_gradients);
    let mut state = run.load(&mut trainer)?;

    // Blocks from random places, each with the characters that come next. A resumed run goes on with those that it would have had, and each
    // process takes a part of every batch.
    let blocks = RandomBlocks::new(train, (BATCH, BLOCK), SEED, &device);
    let blocks = blocks.context("the text is too short")?.at(state.step);
    let blocks = blocks.of_rank(trainer.rank(), trainer.ranks())?;
    let measured = Blocks::new(held_out, (BATCH, BLOCK), &device)?.spread(40 * BATCH);

    // Steps, evaluations and checkpoints, with lines of progress, up to the last step or Ctrl-C.
    let mut log = TrainingLog::replacing(&args.out, &state)?.work(BATCH * BLOCK, "tokens");
    let end = trainer
        .fit(FitConfig {
            steps: args.steps,
            evaluate_every: args.eval_interval,
            ..FitConfig::default()
        })
        .evaluate(|trainer| trainer.try_evaluate_all(measured.clone().pairs()))
        .save(|trainer, state| run.save(state, trainer.contents().json("tokenizer.json", &vocab)))
        .observe(|state, event| log.observe(state, event))
        .agree("data", &tokens)
        .stop(&STOP)
        .run(blocks.pairs(), &mut state)?;
    log.finish();
    if trainer.rank() > 0 {
        return Ok(()); // One process writes.
    }

    // The model goes on from the beginning of the text, token by token.
    let model = trainer.model();
    let mut session = model.session(BLOCK)?;
    let mut sample = vocab.decode(&train[..16])?;
    let writing = session.write(&vocab, &sample, Sampling::with_temperature(0.8))?;
    write!(stdout(), "\n{sample}")?;
    for piece in writing.tokens(500) {
        let piece = piece?;
        write!(stdout(), "{piece}")?;
        stdout().flush()?;
        sample += &piece;
    }

    // The same weights in fewer bits: what they cost on the held-out text.
    let formats = [
        ("f32", None),
        ("bf16", Some(WeightFormat::Bf16)),
        ("int8", Some(WeightFormat::Int8)),
    ];
    write!(stdout(), "\n\nperplexity per character with weights in")?;
    for (name, format) in formats {
        let mut session = model.session(BLOCK)?;
        if let Some(format) = format {
            session = session.weights(format)?;
        }
        write!(
            stdout(),
            " {name}: {:.4}",
            perplexity(&mut session, held_out)?
        )?;
    }

    // A page with the losses, the sample, and what the model attends to.
    let first = train[..BLOCK].to_vec();
    let words = Labels::same([vocab.decode_each(&first)?]);
    let maps = model.attention_maps(device.tensor_from_vec(first, (1, BLOCK)));
    let mut viewer = Viewer::new("Attention in the beginning of the text");
    maps.iter().try_for_each(|map| viewer.add(map, &words))?;
    log.report("char_lm")?
        .text("Settings", &format!("{args:#?}\n{adamw:#?}\n{rates:#?}"))
        .samples("Sample", [&sample])
        .maps(&viewer)
        .text("Parameters", &Gpt::summary())
        .picture("Model", "How values flow.", Gpt::graph_svg())
        .write(args.out.join("report.html"))?;
    writeln!(stdout(), "\n\nreport and checkpoints are in {:?}", args.out)?;
    if end == FitEnd::Stopped {
        writeln!(stdout(), "--resume goes on after step {}", state.step)?;
    }
    Ok(())
}
