//! The steps of several ranks are those of one.

use attn::{
    Element,
    dfdx::prelude::*,
    model,
    train::{
        AdamWConfig, Algorithm, Alone, MuonConfig, ScheduleFreeConfig, Threads, TrainBatch, Trainer,
    },
};

use super::training::*;

/// Sums of other parts have another order.
const F64: f64 = 1e-12;
const F32: f64 = 1e-5;

fn adamw() -> AdamWConfig {
    AdamWConfig {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    }
}

/// Compares 50 steps on 2 and 3 ranks with those on one. All ranks return the same bits.
fn check<E: Element, M: Model<E>, A: Algorithm>(
    make: impl Fn(M) -> Trainer<M, A> + Sync,
    tolerance: f64,
) where
    Batch: TrainBatch<M>,
{
    let expected = steps(Alone::default(), &make, 50).unwrap();
    assert!(expected[49][0] < expected[0][0]);
    for ranks in [2, 3] {
        let run = || Threads::run(ranks, |rank| steps(rank, &make, 50).unwrap());
        let all: Vec<_> = run().into_iter().map(Result::unwrap).collect();
        assert_same(&all[0], &expected, tolerance);
        assert!(all.iter().all(|other| *other == all[0]));
        let again: Vec<_> = run().into_iter().map(Result::unwrap).collect();
        assert_eq!(again, all);
    }
}

#[test]
fn in_f64() {
    check(|model: Gpt<f64, Cpu>| model.trainer(adamw()), F64);
}

#[test]
fn in_f32() {
    check(|model: Gpt<f32, Cpu>| model.trainer(adamw()), F32);
}

#[test]
fn with_dropout() {
    check(
        |model: Dropping<f64, Cpu>| model.trainer(adamw()).seed(3),
        F64,
    );
}

#[test]
fn with_clipping_frozen_parameters_and_a_schedule() {
    use attn::train::Cosine;

    check(
        |model: Gpt<f64, Cpu>| {
            model
                .trainer(adamw())
                .clip(0.5)
                .freeze("blocks.0.*")
                .group("*.bias", |config| config.lr *= 0.5)
                .schedule(Cosine {
                    highest: 0.02,
                    lowest: 0.001,
                    warm_up: 5,
                    steps: 50,
                })
        },
        F64,
    );
}

#[test]
fn with_adapters_alone() {
    check(
        |model: Adapting<f64, Cpu>| model.trainer(adamw()).only_adapters().clip(1.0),
        F64,
    );
}

#[test]
fn with_muon() {
    let config = || MuonConfig {
        lr: 0.01,
        ..Default::default()
    };
    // Each of the five iterations multiplies small singular values, and their rounding, by up to 3.4.
    check(|model: Gpt<f64, Cpu>| model.trainer(config()), 1e-11);
}

model! {
    /// The output layer is a clone of the table, not tied to it.
    pub struct Clones<vocab = 11, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(tokens);
        linear::<vocab, bias = false, name = lm_head>(gelu(linear::<d_model, name = hidden>(x)))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

/// The settings of Muon change in between, from none to all hidden matrices.
#[test]
fn clones_stay_clones_and_matrices_become_hidden() {
    let run = |ranks: usize| {
        let all = Threads::run(ranks, |rank| {
            let mut model = Cpu::seed_from_u64(1).build_module::<Clones, f64>();
            model.lm_head.weight = model.embedding.weight.clone();
            let config = MuonConfig {
                lr: 0.01,
                hidden: |_| false,
                ..MuonConfig::default()
            };
            let mut trainer = model.trainer(config).across(rank);
            let rows = rows(trainer.rank(), trainer.ranks());
            let (mut losses, mut bytes) = (Vec::new(), Vec::new());
            for number in 0..12 {
                trainer.config_mut().lr *= 0.99;
                if number == 4 {
                    trainer.accumulate(batch(3, rows.clone())).unwrap();
                    trainer.config_mut().hidden = |parameter| parameter.decays_by_default();
                    trainer.apply().unwrap();
                }
                let before = trainer.bytes_sent();
                let step = trainer.step(batch(number, rows.clone())).unwrap();
                bytes.push(trainer.bytes_sent() - before);
                losses.push([step.loss, step.grad_norm]);
            }
            // Another rate brings nobody together.
            assert!(
                bytes[1..4].iter().all(|sent| *sent == bytes[1]),
                "{bytes:?}"
            );
            assert!(bytes[4..].iter().all(|sent| *sent == bytes[4]), "{bytes:?}");
            trainer.gather_state().unwrap();
            let lists = trainer.state().lists.keys();
            let lists: Vec<_> = lists.filter(|name| name.ends_with("momentum")).collect();
            assert_eq!(lists, ["hidden.weight.momentum"]);
            let model = trainer.into_model();
            assert_eq!(model.embedding.weight.array(), model.lm_head.weight.array());
            losses
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let expected = run(1).swap_remove(0);
    for ranks in [2, 3] {
        for found in run(ranks) {
            assert_same(&found, &expected, 1e-11);
        }
    }
}

#[test]
fn accumulated_batches_are_one_step() {
    let run = |ranks: usize| {
        Threads::run(ranks, |rank| {
            let model = Gpt::<f64, Cpu>::with_seed(1);
            let mut trainer = model.trainer(adamw()).across(rank);
            let rows = rows(trainer.rank(), trainer.ranks());
            let mut losses = Vec::new();
            for number in 0..10 {
                trainer.accumulate(batch(number, rows.clone())).unwrap();
                trainer.accumulate(batch(number + 1, rows.clone())).unwrap();
                let step = trainer.apply().unwrap();
                losses.push([step.loss, step.grad_norm]);
            }
            losses
        })
        .swap_remove(0)
        .unwrap()
    };
    let expected = run(1);
    for ranks in [2, 3] {
        assert_same(&run(ranks), &expected, F64);
    }
}

#[test]
fn parameters_can_be_frozen_in_between() {
    let run = |ranks: usize| {
        Threads::run(ranks, |rank| {
            let model = Gpt::<f64, Cpu>::with_seed(1);
            let mut trainer = model.trainer(adamw()).across(rank);
            let rows = rows(trainer.rank(), trainer.ranks());
            let mut losses = Vec::new();
            for number in 0..12 {
                if number % 4 == 2 {
                    trainer.set_frozen("blocks.1.*", number == 2).unwrap();
                }
                let step = trainer.step(batch(number, rows.clone())).unwrap();
                losses.push([step.loss, step.grad_norm]);
            }
            losses
        })
        .swap_remove(0)
        .unwrap()
    };
    let expected = run(1);
    for ranks in [2, 3] {
        assert_same(&run(ranks), &expected, F64);
    }
}

#[test]
fn schedule_free_means_are_those_of_one_process() {
    let run = |ranks: usize| {
        Threads::run(ranks, |rank| {
            let model = Gpt::<f64, Cpu>::with_seed(1);
            let config = ScheduleFreeConfig::default();
            let mut trainer = model.trainer(config).across(rank);
            let rows = rows(trainer.rank(), trainer.ranks());
            let mut losses = Vec::new();
            for number in 0..8 {
                trainer.step(batch(number, rows.clone())).unwrap();
                trainer.eval().unwrap();
                losses.push([trainer.evaluate(batch(1, 0..ROWS)).unwrap(), 0.0]);
                trainer.train().unwrap();
            }
            losses
        })
        .swap_remove(0)
        .unwrap()
    };
    let expected = run(1);
    for ranks in [2, 3] {
        assert_same(&run(ranks), &expected, F64);
    }
}
