//! Speculative decoding: a small model proposes tokens, and a large one checks several of them in one call.
//!
//! ```sh
//! cargo run --release --example speculative
//! ```
//!
//! Both models learn the first chapters of Genesis for about a minute. Then the large model continues the text, first alone and then with
//! the small model as draft: greedily, and by sampling. One token of the large model reads all of its weights from memory. Checking
//! several tokens in one call reads them only once.

mod bible;

use std::time::Instant;

use anyhow::{Context, Result};
use attn::{
    batches::RandomBlocks,
    generate::{Acceptance, Sampling, Session},
    prelude::*,
    text::Vocabulary,
    train::AdamWConfig,
};

const VOCAB: usize = 128;
const LEN: usize = 192;
const BATCH: (usize, usize) = (4, 64);
const TEXT: usize = 4000;
const NEW: usize = 150;
const SEED: u64 = 7;

macro_rules! gpt {
    ($name:ident, $d_model:literal, $layers:literal) => {
        model! {
            struct $name<d_model = $d_model, layers = $layers>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
                let mut x = embedding::<VOCAB, d_model>(tokens);
                repeat layers {
                    x += attention::<4, mask = causal, position = rope>(layer_norm(x));
                    x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
                }
                linear::<VOCAB>(layer_norm(x))
            }

            fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
                cross_entropy(forward(tokens), targets)
            }
        }
    };
}

gpt!(Large, 384, 6);
gpt!(Small, 64, 2);

/// A session of a model that has learned the tokens.
macro_rules! learned {
    ($name:ident, $tokens:expr, $steps:expr) => {{
        let device = Cpu::seed_from_u64(SEED);
        let model = device.build_module::<$name, f32>();
        let mut trainer = model.trainer(AdamWConfig::default()).clip(1.0);
        let blocks = RandomBlocks::new($tokens, BATCH, SEED, &device);
        for batch in blocks
            .context("the text is too short")?
            .pairs()
            .take($steps)
        {
            trainer.step(batch?)?;
        }
        println!("{}: {} parameters", stringify!($name), $name::PARAMS);
        trainer.model().session(LEN)?
    }};
}

/// The tokens, the least time in seconds of three runs, and what the draft was worth.
fn write(
    target: &Session<f32>,
    draft: Option<(&Session<f32>, usize)>,
    prompt: &[usize],
    sampling: &Sampling,
) -> Result<(Vec<usize>, f64, Acceptance)> {
    let mut fastest = (Vec::new(), f64::INFINITY, Acceptance::default());
    for _ in 0..3 {
        let mut target = target.fork();
        let begin = Instant::now();
        let (tokens, acceptance) = match draft {
            None => {
                let tokens = target.generate(prompt, sampling.clone(), &[])?.take(NEW);
                (
                    tokens.collect::<Result<Vec<_>, _>>()?,
                    Acceptance::default(),
                )
            }
            Some((draft, k)) => {
                let mut draft = draft.fork();
                let mut tokens =
                    target.generate_with_draft(&mut draft, k, prompt, sampling.clone(), &[])?;
                let all = tokens.by_ref().take(NEW).collect::<Result<Vec<_>, _>>()?;
                (all, tokens.acceptance())
            }
        };
        let seconds = begin.elapsed().as_secs_f64();
        if seconds < fastest.1 {
            fastest = (tokens, seconds, acceptance);
        }
    }
    Ok(fastest)
}

fn main() -> Result<()> {
    let text: String = bible::text(None)?
        .chars()
        .filter(char::is_ascii)
        .take(TEXT)
        .collect();
    let vocabulary = Vocabulary::characters(&text)?;
    let tokens = vocabulary.encode(&text)?;
    let target = learned!(Large, &tokens, 150);
    let draft = learned!(Small, &tokens, 1500);
    let prompt = &tokens[..16];
    for temperature in [0.0, 0.8] {
        let sampling = Sampling {
            temperature,
            vocabulary: Some(vocabulary.len()),
            ..Sampling::default()
        };
        let (alone, seconds, _) = write(&target, None, prompt, &sampling)?;
        println!(
            "\nTemperature {temperature}: {:?}\nalone    {:>6.2} ms a token",
            vocabulary.decode(&alone[..60])?,
            1e3 * seconds / NEW as f64
        );
        for k in [2, 4, 6, 8] {
            let (with, faster, acceptance) = write(&target, Some((&draft, k)), prompt, &sampling)?;
            println!(
                "k = {k}    {:>6.2} ms a token, {:.2} times as fast, {:>3.0}% accepted{}",
                1e3 * faster / NEW as f64,
                seconds / faster,
                100.0 * acceptance.rate(),
                match (temperature == 0.0, with == alone) {
                    (true, true) => ", the same tokens",
                    (true, false) => ", other tokens: of nearly equal logits",
                    _ => "",
                }
            );
        }
    }
    Ok(())
}
