//! Gradients that are sent in bf16, with what is missing of them in the next step.

use std::time::Duration;

use attn::{
    Element,
    checkpoint::{Checkpoints, LoadOptions, Problem},
    dfdx::prelude::*,
    train::{
        AdamWConfig, Alone, Call, Collective, CollectiveError, Message, MuonConfig, NonFinite,
        Outgoing, Pending, SgdConfig, Threads, TrainBatch, TrainError, Trainable, Trainer,
        TrainerParameter,
    },
};

use super::{
    numbers::{Line, line},
    training::*,
};

fn in_bf16(trainer: Trainer<Gpt<f64, Cpu>, AdamWConfig>) -> Trainer<Gpt<f64, Cpu>, AdamWConfig> {
    trainer.bf16_gradients(true)
}

fn trainer<E: Element>(rank: impl Collective + 'static) -> Trainer<Gpt<E, Cpu>, AdamWConfig>
where
    Gpt<E, Cpu>: Model<E>,
{
    let model = Gpt::<E, Cpu>::with_seed(1);
    model.trainer(AdamWConfig::default()).across(rank)
}

/// A rank that sends the gradients of `f32` as numbers of bf16, without what was missing of those before. Each message has one of them, behind
/// a byte.
struct Rounding(Threads);

impl Collective for Rounding {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn begin(&mut self, call: Call, mut send: Outgoing) -> Result<Pending, CollectiveError> {
        if let (Call::AllToAll, Outgoing::Each(messages)) = (call, &mut send) {
            for message in messages {
                let numbers = message.get_mut(1..).unwrap_or_default();
                for number in numbers.as_chunks_mut::<4>().0 {
                    *number = nearest(f32::from_le_bytes(*number)).to_le_bytes();
                }
            }
        }
        self.0.begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        self.0.wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        self.0.fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        self.0.bytes_sent()
    }

    fn waited(&self) -> Duration {
        self.0.waited()
    }
}

/// The nearest number of 8 significant bits, by a division: of normal numbers.
fn nearest(x: f32) -> f32 {
    let exponent = x.abs().log2().floor().max(-126.0) as i32;
    let unit = 2.0_f64.powi(exponent - 7);
    ((f64::from(x) / unit).round_ties_even() * unit) as f32
}

const STEPS: usize = 50;

/// The parameters behind each of some steps, of the first rank.
fn run<M: Model<f32> + Trainable<Element = f32, Device = Cpu> + Send>(
    make: impl Fn(Threads) -> Trainer<M, SgdConfig> + Sync,
    parameters: impl Fn(&M) -> Vec<f32> + Sync,
) -> Vec<Vec<f32>>
where
    Batch: TrainBatch<M>,
{
    let all = Threads::run(2, |rank| {
        let mut trainer = make(rank);
        let rows = rows(trainer.rank(), trainer.ranks());
        let mut behind = Vec::new();
        for number in 0..STEPS {
            trainer.step(batch(number % 7, rows.clone())).unwrap();
            behind.push(parameters(trainer.model()));
        }
        behind
    });
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert!(all[0] == all[1], "both ranks have the same parameters");
    all.into_iter().next().unwrap()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    squares.sum::<f64>().sqrt()
}

/// Where each step moves a parameter by its gradient, the errors of gradients that are rounded alone add up to a random walk, or a way in one
/// direction; with what was missing in the next one they are never more than the last.
#[test]
fn what_is_missing_is_added_to_the_next_gradients() {
    let config = || SgdConfig {
        lr: 0.01,
        momentum: 0.0,
        ..Default::default()
    };
    let model = || Gpt::<f32, Cpu>::with_seed(1).trainer(config());
    let table = |model: &Gpt<f32, Cpu>| model.embedding.weight.as_vec();
    let exact = run(|rank| model().across(rank), table);
    let with_feedback = run(|rank| model().across(rank).bf16_gradients(true), table);
    let rounded = run(|rank| model().across(Rounding(rank)).bucket_bytes(1), table);
    let last = STEPS - 1;
    let way = distance(&exact[0], &exact[last]);
    let [with, without] =
        [&with_feedback, &rounded].map(|found| distance(&found[last], &exact[last]) / way);
    assert!(with > 0.0);
    assert!(with < 1e-3 && 2.0 * with < without, "{with}, {without}");
}

#[test]
fn losses_are_near_those_of_full_gradients() {
    let run = |ranks: usize, is_on: bool| {
        let all = Threads::run(ranks, |rank| {
            steps(
                rank,
                |model: Gpt<f32, Cpu>| {
                    model
                        .trainer(AdamWConfig::default())
                        .bf16_gradients(is_on)
                        .clip(1.0)
                },
                STEPS,
            )
            .unwrap()
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    for ranks in [2, 3] {
        let [full, found] = [false, true].map(|is_on| run(ranks, is_on));
        assert!(found.iter().all(|of| *of == found[0]));
        assert_eq!(run(ranks, true), found, "the same bits in every run");
        assert!(found[0] != full[0]);
        // A number of bf16 is off by 2^-9 of it at most.
        assert_same(&found[0][..1], &full[0][..1], 2e-3);
        assert_same(&found[0], &full[0], 2e-2);
        let last = STEPS - 1;
        assert!(found[0][last][0] < found[0][0][0]);
    }
}

/// Every parameter is a bucket of its own, so every order of them shows.
#[test]
fn the_exchange_beside_the_backward_pass_has_the_same_bits() {
    let run = |ranks: usize, batches: usize, how: How, bucket: usize, pattern: Option<&str>| {
        let all = Threads::run(ranks, |rank| {
            let trainer = in_bf16(trainer::<f64>(rank)).bucket_bytes(bucket);
            let mut trainer = match pattern {
                Some(pattern) => trainer.freeze(pattern),
                None => trainer,
            };
            steps_in_a_way(&mut trainer, batches, how, of_gpt).unwrap()
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    for ranks in [2, 3] {
        for batches in [1, 3] {
            for pattern in [None, Some("blocks.0.*")] {
                let expected = run(ranks, batches, How::Late, 1 << 20, pattern);
                let found = run(ranks, batches, How::Early, 1, pattern);
                assert_eq!(found, expected, "{ranks} ranks, {batches} batches");
                assert!(found.iter().all(|of| *of == found[0]));
            }
        }
    }
}

#[test]
fn whole_parameters_are_rounded_too() {
    let run = |is_on: bool| {
        let all = Threads::run(3, |rank| {
            let config = MuonConfig::default();
            let make = |model: Gpt<f64, Cpu>| model.trainer(config).bf16_gradients(is_on);
            let mut trainer = make(Gpt::with_seed(1)).across(rank);
            let rows = rows(trainer.rank(), trainer.ranks());
            let step = |number| trainer.step(batch(number, rows.clone())).unwrap();
            let losses: Vec<_> = (0..10).map(step).map(|step| [step.loss, 0.0]).collect();
            losses
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    let [full, found] = [false, true].map(run);
    assert!(found.iter().all(|of| *of == found[0]));
    assert!(found[0] != full[0]);
    // Muon multiplies small singular values, and their rounding, by up to 450.
    assert_same(&found[0], &full[0], 0.2);
}

/// Steps of four batches between steps of one: errors are those of the mean of the batches.
#[test]
fn errors_are_of_the_mean_of_the_batches() {
    let run = |is_on: bool| {
        let all = Threads::run(2, |rank| {
            let dev = Cpu::default();
            let model = dev.build_module::<Line, f64>();
            let trainer = model.trainer(SgdConfig {
                lr: 1e-3,
                momentum: 0.0,
                ..Default::default()
            });
            let mut trainer = trainer.across(rank).bf16_gradients(is_on);
            for number in 0..40 {
                for _ in 0..if number % 2 == 0 { 8 } else { 1 } {
                    trainer.accumulate(line(0.3)).unwrap();
                }
                trainer.apply().unwrap();
            }
            trainer.model().linear.weight.as_vec()[0]
        });
        all.into_iter().map(Result::unwrap).next().unwrap()
    };
    let [full, found]: [f64; 2] = [false, true].map(run);
    // The last error alone is missing, of a gradient of a few units. Errors of sums would be eight times as large, in every step.
    assert!((full - found).abs() < 1e-5, "{full}, {found}");
}

#[test]
fn bytes_of_a_step_and_of_a_rank() {
    let parameters = trainer::<f64>(Alone::default()).parameters();
    let len = |of: &TrainerParameter| of.dims.iter().product::<usize>();
    for ranks in [1, 2, 3] {
        let found = Threads::run(ranks, |rank| {
            let mut trainer = in_bf16(trainer::<f64>(rank));
            let row = trainer.rank();
            trainer.step(batch(0, row..row + 1)).unwrap();
            let before = trainer.bytes_sent();
            trainer.step(batch(1, row..row + 1)).unwrap();
            let lists = trainer.state().lists.values().map(Vec::len).sum::<usize>();
            let kept = 8 * Gpt::PARAMS + trainer.gradient_bytes() + 8 * lists;
            (trainer.bytes_sent() - before, kept)
        });
        let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
        let sent: u64 = found.iter().map(|(sent, _)| sent).sum();
        // As `state.rs` says of full gradients; in f64, parameters have twice the bytes.
        let parts = parameters.iter().map(|of| len(of).div_ceil(16).min(ranks));
        let said = (ranks - 1) * (ranks * 4 * 8 + parts.sum::<usize>());
        let parameters_again = 4 * Gpt::PARAMS * (ranks - 1);
        let expected = Gpt::bytes_per_step_bf16(ranks) + parameters_again + said;
        assert_eq!(sent as usize, expected, "{ranks} ranks");
        let expected = 2 * Gpt::training_bytes_bf16(ranks, 2);
        // Some cache lines that one rank has more: of two lists, less of the errors.
        let units = parameters.len() * 16 * 2 * 8;
        let allowed = if ranks == 1 {
            0
        } else {
            units / ranks + 2 * 16 * 8
        };
        for (_, kept) in found {
            assert!(kept.abs_diff(expected) <= allowed, "{kept} of {expected}");
        }
    }
    assert_eq!(Gpt::bytes_per_step_bf16(1), 0);
    assert_eq!(4 * Gpt::bytes_per_step_bf16(3), 3 * Gpt::bytes_per_step(3));
}

#[test]
fn a_checkpoint_goes_on_bit_by_bit_with_as_many_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let train = |trainer: &mut Trainer<Gpt<f64, Cpu>, AdamWConfig>, steps| {
        let rows = rows(trainer.rank(), trainer.ranks());
        let step = |number: usize| trainer.step(batch(number % 7, rows.clone())).unwrap().loss;
        std::ops::Range::map(steps, step).collect::<Vec<f64>>()
    };
    for (before, after, gathers) in [(2, 2, false), (3, 3, true), (2, 3, false), (3, 1, false)] {
        let checkpoints = Checkpoints::new(folder.path().join(format!("{before}_{after}")));
        let first = Threads::run(before, |rank| {
            let mut trainer = in_bf16(trainer(rank));
            train(&mut trainer, 0..6);
            if gathers {
                trainer.gather_state().unwrap();
            }
            checkpoints.save(6, &trainer.contents(), None).unwrap();
            train(&mut trainer, 6..12)
        });
        let expected = first.into_iter().next().unwrap().unwrap();
        let second = Threads::run(after, |rank| {
            let mut trainer = in_bf16(trainer(rank));
            let checkpoint = checkpoints.latest().unwrap().unwrap();
            trainer.load(&checkpoint, LoadOptions::default()).unwrap();
            // Errors are not lost where the next step is another run's.
            checkpoints.save(7, &trainer.contents(), None).unwrap();
            let checkpoint = checkpoints.latest().unwrap().unwrap();
            trainer.load(&checkpoint, LoadOptions::default()).unwrap();
            train(&mut trainer, 6..12)
        });
        let found = second.into_iter().next().unwrap().unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-2, "{found} and {expected}");
        }
        assert_eq!(found == expected, before == after, "{before}, {after}");
    }
}

#[test]
fn files_of_other_ranks_or_steps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let saved = Threads::run(2, |rank| {
        let mut trainer = in_bf16(trainer(rank));
        for number in 0..2 {
            let rows = rows(trainer.rank(), trainer.ranks());
            trainer.step(batch(number, rows)).unwrap();
            let contents = trainer.contents();
            checkpoints.save(number as u64, &contents, None).unwrap();
        }
    });
    saved.into_iter().for_each(Result::unwrap);
    let file = |step: u64, rank: usize| {
        let name = format!("rounding-errors-0000{rank}-of-00002.safetensors");
        checkpoints.at(step).unwrap().folder().join(name)
    };
    let load = || {
        let all = Threads::run(2, |rank| {
            let mut trainer = in_bf16(trainer(rank));
            let checkpoint = checkpoints.latest().unwrap().unwrap();
            trainer.load(&checkpoint, LoadOptions::default())
        });
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert!(load().iter().all(Result::is_ok));
    std::fs::copy(file(0, 1), file(1, 1)).unwrap();
    let error = load().swap_remove(0).unwrap_err();
    assert!(matches!(error.problem, Problem::OtherShard), "{error}");
    std::fs::copy(file(1, 2), file(1, 1)).unwrap();
    let error = load().swap_remove(0).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is the shard of rank 1, in place of that of rank 0"),
        "{error}"
    );
    std::fs::remove_file(file(1, 1)).unwrap();
    for loaded in load() {
        let error = loaded.unwrap_err();
        assert!(
            matches!(error.problem, Problem::Shard { ranks: 2, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_rank_with_another_setting_is_refused() {
    let ends = Threads::run(3, |rank| {
        let is_on = rank.rank() != 1;
        let mut trainer = trainer::<f64>(rank).bf16_gradients(is_on);
        let rows = rows(trainer.rank(), trainer.ranks());
        trainer.step(batch(0, rows)).map(drop)
    });
    for end in ends {
        let error = end.unwrap().unwrap_err();
        let TrainError::Ranks(CollectiveError::Differs { rank: 1, what }) = &error else {
            panic!("{error}")
        };
        assert_eq!(what, "settings");
    }
}

/// Numbers that are none arrive so. The step that they are of leaves no errors, so the next ones are as if it had not been.
#[test]
fn a_step_that_is_not_finite_leaves_nothing() {
    for bad in [f64::NAN, f64::INFINITY, 1e39] {
        let run = |has_bad: bool| {
            let all = Threads::run(2, |rank| {
                let dev = Cpu::default();
                let model = dev.build_module::<Line, f64>();
                let trainer = model.trainer(SgdConfig::default()).across(rank);
                let mut trainer = trainer.bf16_gradients(true).non_finite(NonFinite::Skip);
                if has_bad {
                    let of_rank_1 = if trainer.rank() == 1 { bad } else { 1.0 };
                    let step = trainer.step(line(of_rank_1)).unwrap();
                    assert!(step.skipped, "{bad}");
                }
                let steps = (0..5).map(|_| trainer.step(line(0.3)).unwrap().loss);
                steps.collect::<Vec<_>>()
            });
            all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        assert_eq!(run(true), run(false), "{bad}");
    }
}
