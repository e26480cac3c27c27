//! A trainer with the targets that count, its averages, its rates and groups, dropout, and all algorithms through a checkpoint.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod averages;
mod dropout;
mod rates;
mod resume;
mod schedule_free;
mod targets;
mod texts;

use attn::{
    Backend, Element,
    dfdx::prelude::*,
    model,
    train::{Algorithm, TrainStep, Trainer},
};
use support::{
    cases::scatter,
    close::assert_close,
    tensors::{Named, parameters},
};

/// The target that does not count.
const PAD: usize = 99;

model! {
    /// A table, norms, matrices, and dropout.
    struct Net<vocab = 7, d = 6, p = 0.0>;

    fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(ids);
        let x = x + linear::<d>(dropout::<p>(layer_norm(x)));
        linear::<vocab>(x)
    }

    fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = PAD>(forward(ids), targets)
    }
}

type Ids = Tensor<(usize, usize), usize, Cpu>;
type NetTrainer<A, E = f64> = Trainer<Net<E, Cpu>, A>;

fn scattered<E: Element>() -> Net<E, Cpu>
where
    Cpu: Backend<E>,
{
    let mut model = Cpu::default().build_module::<Net, E>();
    scatter(&mut model);
    model
}

/// Rows of tokens, of which so many have a target.
fn batch_with(number: usize, rows: usize, counted: usize) -> (Ids, Ids) {
    let device = Cpu::default();
    let token = |i: usize| (i * i + (3 + number) * i + number) % 7;
    let ids = (0..4 * rows).map(token);
    let target = |i| if i < counted { token(i + 5) } else { PAD };
    let targets = (0..4 * rows).map(target);
    let shape = (rows, 4);
    (
        device.tensor_from_vec(ids.collect(), shape),
        device.tensor_from_vec(targets.collect(), shape),
    )
}

fn batch(number: usize) -> (Ids, Ids) {
    batch_with(number, 3, 10)
}

fn take<A: Algorithm, E: Element>(
    trainer: &mut NetTrainer<A, E>,
    steps: std::ops::Range<usize>,
) -> Vec<TrainStep>
where
    Cpu: Backend<E>,
{
    let steps = steps.map(|number| trainer.step(batch(number)).unwrap());
    steps.collect()
}

fn assert_same(found: &[Named], expected: &[Named], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.name, expected.name);
        assert_close(&found.name, &found.values, &expected.values, tolerance);
    }
}
