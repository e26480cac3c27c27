//! Held-out losses of language models whose products multiply numbers in bf16, beside those of `f32`.
//!
//! ```sh
//! cargo run --release --example bf16 -- small
//! cargo run --release --example bf16 -- medium --steps 500 --seeds 1 2 3
//! ```
//!
//! Each seed is a model and its batches, which both runs share. The last column is how much larger the loss in bf16 is.

mod bible;
#[path = "../benches/language_model/sizes.rs"]
#[allow(
    dead_code,
    reason = "the benches have the models in plain dfdx as well"
)]
mod sizes;

use anyhow::{Context, Result, anyhow};
use attn::{
    batches::{Blocks, RandomBlocks},
    dfdx::prelude::*,
    train::{AdamWConfig, Cosine, Dtype, TrainBatch, Trainable},
};
use clap::{Parser, ValueEnum};
use sizes::{MEDIUM, Medium, SMALL, Size, Small, VOCAB};
use std::{collections::BTreeMap, time::Instant};

/// Trains a model on the King James Bible, twice for each seed.
#[derive(Parser)]
struct Options {
    /// The model
    model: Which,
    /// Training steps
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// The seeds
    #[arg(long, num_args = 1.., default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Which {
    Small,
    Medium,
}

type Tokens = Tensor<(usize, usize), usize, Cpu>;

fn main() -> Result<()> {
    let options = Options::parse();
    let tokens = tokens(&bible::text(None)?);
    println!(
        "{:<6} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "seed", "f32", "bf16", "f32 s", "bf16 s", "more"
    );
    for seed in options.seeds {
        let run = |dtype| match options.model {
            Which::Small => train::<Small>(&SMALL, &tokens, options.steps, seed, dtype),
            Which::Medium => train::<Medium>(&MEDIUM, &tokens, options.steps, seed, dtype),
        };
        let [whole, rounded] = [run(Dtype::Model)?, run(Dtype::Bf16)?];
        let more = 100.0 * (rounded.0 / whole.0 - 1.0);
        println!(
            "{seed:<6} {:>10.5} {:>10.5} {:>9.1} {:>9.1} {more:>8.2}%",
            whole.0, rounded.0, whole.1, rounded.1
        );
    }
    Ok(())
}

/// The characters by how frequent they are. The rarest share the last number.
fn tokens(text: &str) -> Vec<usize> {
    let mut counts = BTreeMap::<char, usize>::new();
    text.chars()
        .for_each(|c| *counts.entry(c).or_default() += 1);
    let mut order: Vec<(char, usize)> = counts.into_iter().collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let numbers = order.into_iter().enumerate();
    let numbers: BTreeMap<char, usize> = numbers
        .map(|(number, (c, _))| (c, number.min(VOCAB - 1)))
        .collect();
    text.chars().map(|c| numbers[&c]).collect()
}

/// The loss on the last tenth of the text, and the seconds of the training.
fn train<M>(
    size: &Size,
    tokens: &[usize],
    steps: u64,
    seed: u64,
    dtype: Dtype,
) -> Result<(f64, f64)>
where
    M: BuildOnDevice<Cpu, f32>,
    M::Built: Trainable<Element = f32, Device = Cpu>,
    (Tokens, Tokens): TrainBatch<M::Built>,
{
    let device = Cpu::seed_from_u64(seed);
    let rates = Cosine {
        highest: 1e-3,
        lowest: 1e-4,
        warm_up: 50,
        steps,
    };
    let model = device.build_module::<M, f32>();
    let trainer = attn::train::Trainer::new(model, AdamWConfig::default());
    let mut trainer = trainer.schedule(rates).clip(1.0).dtype(dtype);
    let (train, held_out) = tokens.split_at(tokens.len() * 9 / 10);
    let shape = (size.batch, size.length);
    let blocks = RandomBlocks::new(train, shape, seed, &device).context("the text is too short")?;
    let start = Instant::now();
    for batch in blocks.pairs().take(steps as usize) {
        trainer.step(batch?)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let measured = Blocks::new(held_out, shape, &device)?.spread(20 * size.batch);
    let loss = trainer.try_evaluate_all(measured.pairs());
    Ok((loss.map_err(|error| anyhow!("{error}"))?, seconds))
}
