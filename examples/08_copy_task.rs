//! Lesson 8: a minimal model of a task that requires exact copying. It reads a sign, some random symbols and the sign again, and
//! repeats the symbols. Texts have different lengths. So to predict the next symbol, it must find the earlier occurrence of the
//! last one, and attend to the symbol after it: an induction head, which takes two layers of attention.
//!
//! Olsson et al., "In-context learning and induction heads" (2022).
//!
//! ```text
//! cargo run --release --example 08_copy_task
//! ```

use anyhow::{Result, ensure};
use attn::{
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, Cosine},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::index::sample};
use std::ops::RangeInclusive;

/// The number of symbols. The sign is the token after them.
const SYMBOLS: usize = 20;
const SIGN: usize = SYMBOLS;
const VOCAB: usize = SYMBOLS + 1;
/// The number of symbols in a text, all different.
const COUNTS: RangeInclusive<usize> = 4..=12;
/// The tokens that the model reads: the sign, the symbols, the sign, and the repeated symbols so far.
const LENGTH: usize = 2 * *COUNTS.end() + 1;
const BATCH: usize = 64;
const STEPS: u64 = 500;

model! {
    /// A decoder of two layers.
    struct Copier<vocab = VOCAB, d_model = 64, layers = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<LENGTH, d_model>(tokens);
        repeat layers {
            x += attention::<heads = 4, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }

    /// The first symbols are unpredictable: they have the target `vocab`, and are no part of the loss.
    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = vocab>(forward(tokens), targets)
    }
}

type Tokens = Tensor<(usize, usize), usize, Cpu>;

fn main() -> Result<()> {
    let device = Cpu::seed_from_u64(8);
    let mut rng = StdRng::seed_from_u64(8);
    println!("{}", Copier::summary());
    let rates = Cosine {
        highest: 3e-3,
        lowest: 3e-4,
        warm_up: 30,
        steps: STEPS,
    };
    let mut trainer = device
        .build_module::<Copier, f32>()
        .trainer(AdamWConfig::default())
        .schedule(rates)
        .clip(1.0);
    for step in 1..=STEPS {
        let loss = trainer.step(batch(&device, &mut rng))?.loss;
        if step % 100 == 0 || step == 1 {
            let right = 100.0 * accuracy(trainer.model(), &device, &mut rng);
            println!("step {step:>3}  loss {loss:.3}  new texts without a mistake: {right:>3.0}%");
        }
    }
    for _ in 0..10 {
        let right = accuracy(trainer.model(), &device, &mut rng);
        ensure!(right == 1.0, "the copier has to reach 100%: {right}");
    }
    println!("{} more texts without a mistake", 10 * BATCH);
    Ok(())
}

/// Texts, and the next token after each of their tokens, where it is predictable.
fn batch(device: &Cpu, rng: &mut StdRng) -> (Tokens, Tokens) {
    let mut tokens = Vec::new();
    let mut targets = Vec::new();
    for _ in 0..BATCH {
        let count = rng.gen_range(COUNTS);
        let symbols = sample(rng, SYMBOLS, count).into_vec();
        let said = [&[SIGN], &symbols[..], &[SIGN], &symbols[..count - 1]].concat();
        let next = [&[VOCAB; LENGTH][..=count], &symbols].concat();
        let rest = LENGTH - said.len();
        tokens.extend([said, vec![SIGN; rest]].concat());
        targets.extend([next, vec![VOCAB; rest]].concat());
    }
    let shape = (BATCH, LENGTH);
    let [tokens, targets] = [tokens, targets].map(|ids| device.tensor_from_vec(ids, shape));
    (tokens, targets)
}

/// The fraction of new texts that the model repeats without a mistake, reading its own symbols.
fn accuracy(copier: &Copier<f32, Cpu>, device: &Cpu, rng: &mut StdRng) -> f64 {
    let (tokens, targets) = batch(device, rng);
    let mut texts = tokens.as_vec();
    let targets = targets.as_vec();
    let mut is_right = [true; BATCH];
    for place in 0..LENGTH {
        let tokens = device.tensor_from_vec(texts.clone(), (BATCH, LENGTH));
        let logits = copier.forward(tokens).as_vec();
        for (text, is_right) in is_right.iter_mut().enumerate() {
            let at = text * LENGTH + place;
            if targets[at] == VOCAB {
                continue;
            }
            let next = likeliest(&logits[at * VOCAB..][..VOCAB]);
            *is_right &= next == targets[at];
            let goes_on = place + 1 < LENGTH && targets[at + 1] != VOCAB;
            if goes_on {
                texts[at + 1] = next;
            }
        }
    }
    is_right.iter().filter(|right| **right).count() as f64 / BATCH as f64
}

fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (symbol, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = symbol;
        }
    }
    best
}
