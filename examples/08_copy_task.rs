//! Lesson 8: the smallest model that has to get everything right. It reads random symbols and a sign, and repeats the
//! symbols: to know the next one it must find the place where it stood before. That takes attention, and nothing else does it.
//!
//! ```text
//! cargo run --release --example 08_copy_task
//! ```

use attn::{
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
    train::{AdamW, AdamWConfig, Cosine, Schedule, clip_grad_norm},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Symbols, and after them the sign that says "now you".
const SYMBOLS: usize = 20;
const SIGN: usize = SYMBOLS;
const VOCAB: usize = SYMBOLS + 1;
/// Symbols to be repeated.
const COUNT: usize = 12;
/// Tokens that the model reads: the symbols, the sign, and what it has repeated so far.
const LENGTH: usize = 2 * COUNT;
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
}

type Tokens = Tensor<(usize, usize), usize, Cpu>;

fn main() {
    let device = Cpu::seed_from_u64(8);
    let mut rng = StdRng::seed_from_u64(8);
    let mut copier = device.build_module::<Copier, f32>();
    println!("{}", Copier::summary());
    let mut optimizer = AdamW::new(AdamWConfig::default());
    let rates = Cosine {
        highest: 3e-3,
        lowest: 3e-4,
        warm_up: 30,
        steps: STEPS,
    };
    let mut gradients = copier.alloc_grads();
    for step in 1..=STEPS {
        let (tokens, targets) = batch(&device, &mut rng);
        let logits = copier.forward_mut(tokens.traced(gradients));
        let loss = cross_entropy(logits, &targets, only_the_copy());
        if step % 100 == 0 || step == 1 {
            let right = 100.0 * accuracy(&copier, &device, &mut rng);
            println!(
                "step {step:>3}  loss {:.3}  new texts without a mistake: {right:>3.0}%",
                loss.array()
            );
        }
        gradients = loss.backward();
        clip_grad_norm(&copier, &mut gradients, 1.0).expect("every parameter has a gradient");
        optimizer.config.lr = rates.rate(step);
        optimizer
            .update(&mut copier, &mut gradients)
            .expect("every parameter has a gradient");
        copier.zero_grads(&mut gradients);
    }
    let right = accuracy(&copier, &device, &mut rng);
    assert_eq!(right, 1.0, "the copier has to reach 100%");
}

/// The first symbols cannot be known, so they are no part of the loss.
fn only_the_copy() -> CrossEntropyOptions {
    CrossEntropyOptions {
        ignore_index: Some(VOCAB),
        ..Default::default()
    }
}

/// Texts, and for each token the one that comes next, where that can be known.
fn batch(device: &Cpu, rng: &mut StdRng) -> (Tokens, Tokens) {
    let (mut tokens, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..BATCH {
        let symbols: Vec<usize> = (0..COUNT).map(|_| rng.gen_range(0..SYMBOLS)).collect();
        tokens.extend(&symbols);
        tokens.push(SIGN);
        tokens.extend(&symbols[..COUNT - 1]);
        targets.extend([VOCAB; COUNT]);
        targets.extend(&symbols);
    }
    let shape = (BATCH, LENGTH);
    let [tokens, targets] = [tokens, targets].map(|ids| device.tensor_from_vec(ids, shape));
    (tokens, targets)
}

/// The share of new texts that are repeated without a mistake, symbol by symbol from what the model itself wrote.
fn accuracy(copier: &Copier<f32, Cpu>, device: &Cpu, rng: &mut StdRng) -> f64 {
    let (tokens, targets) = batch(device, rng);
    let (mut texts, targets) = (tokens.as_vec(), targets.as_vec());
    let mut is_right = [true; BATCH];
    for place in COUNT..LENGTH {
        let tokens = device.tensor_from_vec(texts.clone(), (BATCH, LENGTH));
        let logits = copier.forward(tokens).as_vec();
        for (text, is_right) in is_right.iter_mut().enumerate() {
            let at = text * LENGTH + place;
            let next = likeliest(&logits[at * VOCAB..][..VOCAB]);
            *is_right &= next == targets[at];
            if place + 1 < LENGTH {
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
