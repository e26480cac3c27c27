//! `Trainer::fit` over several ranks: they stop together, one of them records, and what differs between them is refused.

use std::{convert::Infallible, fs, io, ops::ControlFlow, sync::Mutex};

use attn::{
    batches::RandomBlocks,
    checkpoint::{Checkpoints, Problem},
    dfdx::prelude::*,
    train::{
        AdamWConfig, Fit, FitConfig, FitEnd, FitError, FitEvent, FitFailure, FitState, Threads,
        TrainError, Trainer, fit,
    },
    viz::{Metrics, Record, TrainingLog},
};

use super::training::*;

type Net = Gpt<f64, Cpu>;
type Gpts = Trainer<Net, AdamWConfig>;
type Ended = Result<FitEnd, FitError<FitFailure>>;

fn trainer(rank: Threads) -> Gpts {
    let model = Gpt::with_seed(1);
    let trainer = model.trainer(AdamWConfig::default()).ema(0.9);
    trainer.across(rank)
}

fn config(steps: u64) -> FitConfig {
    FitConfig {
        steps,
        evaluate_every: 4,
        ..FitConfig::default()
    }
}

/// The part that a rank has of the batches after some steps.
fn batches(trainer: &Gpts, step: u64) -> impl Iterator<Item = Result<Batch, Infallible>> + use<> {
    let rows = rows(trainer.rank(), trainer.ranks());
    (step as usize..).map(move |number| Ok(batch(number % 7, rows.clone())))
}

/// Whole batches, which all ranks evaluate together.
fn validation() -> impl Iterator<Item = Batch> {
    (0..5).map(|number| batch(20 + number, 0..ROWS))
}

/// The ends of runs of three ranks, with something else on each of them.
fn ends(
    steps: impl Fn(usize) -> u64 + Sync,
    with: impl for<'a> Fn(usize, Fit<'a, Net, AdamWConfig>) -> Fit<'a, Net, AdamWConfig> + Sync,
) -> Vec<Ended> {
    let ends = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        let batches = batches(&trainer, 0);
        let rank = trainer.rank();
        let fit = with(rank, trainer.fit(config(steps(rank))));
        fit.run(batches.take(20), &mut FitState::default())
    });
    ends.into_iter().map(Result::unwrap).collect()
}

fn assert_all(ends: Vec<Ended>, expected: &str) {
    for end in ends {
        let error = end.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_rank_that_is_told_to_stop_stops_all_after_the_same_step_with_one_checkpoint() {
    for told in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let ends = Threads::run(3, |mut ranks| {
            let run = Checkpoints::new(folder.path()).run_across(&mut ranks, false);
            let run = run.unwrap();
            let mut trainer = trainer(ranks);
            let mut state = run.load(&mut trainer).unwrap();
            let (rank, batches) = (trainer.rank(), batches(&trainer, 0));
            // A batch that is drawn and not trained on would be missing in a run that goes on behind the last one.
            let mut drawn = 0;
            let batches = batches.inspect(|_| drawn += 1);
            let end = trainer
                .fit(config(12))
                .save(|trainer, state| run.save(state, trainer.contents()))
                .stop_when(|state| rank == told && state.step == 6)
                .run(batches, &mut state);
            (end.unwrap(), state.step, drawn)
        });
        for end in ends {
            assert_eq!(end.unwrap(), (FitEnd::Stopped, 6, 6));
        }
        assert_eq!(Checkpoints::new(folder.path()).steps().unwrap(), [4, 6]);
    }
}

#[test]
fn a_stopped_run_goes_on_with_any_number_of_ranks() {
    let run = |folder: &std::path::Path, ranks: usize, resume: bool, stop: u64| {
        let losses = Threads::run(ranks, |mut ranks| {
            let run = Checkpoints::new(folder).run_across(&mut ranks, resume);
            let run = run.unwrap();
            let mut trainer = trainer(ranks);
            let mut state = run.load(&mut trainer).unwrap();
            let batches = batches(&trainer, state.step);
            let losses = Mutex::new(Vec::new());
            trainer
                .fit(config(8))
                .evaluate(|trainer| trainer.evaluate_all(validation()))
                .save(|trainer, state| run.save(state, trainer.contents()))
                .observe(|_, event| {
                    if let FitEvent::Step(step) = event {
                        losses.lock().unwrap().push(step.loss);
                    }
                    Ok::<_, String>(())
                })
                .stop_when(|state| state.step == stop)
                .run(batches, &mut state)
                .unwrap();
            let losses = losses.into_inner().unwrap();
            (losses, state, trainer.into_model())
        });
        let mut losses = losses.into_iter().map(Result::unwrap);
        let (losses, state, model) = losses.next().unwrap();
        (losses, state, model.attention_bits())
    };
    let folder = |name: &str, all: &tempfile::TempDir| all.path().join(name);
    let all = tempfile::tempdir().unwrap();
    let whole = run(&folder("whole", &all), 3, false, 99);
    for ranks in 1..=3 {
        let folder = folder(&ranks.to_string(), &all);
        let first = run(&folder, 3, false, 5);
        let second = run(&folder, ranks, true, 99);
        let losses = [first.0, second.0].concat();
        let mut pairs = losses.iter().zip(&whole.0);
        assert_eq!(losses.len(), 8);
        if ranks == 3 {
            assert!(losses == whole.0 && second.1 == whole.1 && second.2 == whole.2);
        }
        assert!(pairs.all(|(found, expected)| (found - expected).abs() < 1e-12));
    }
}

trait Bits {
    fn attention_bits(&self) -> Vec<u64>;
}

impl Bits for Net {
    /// The logits of a batch.
    fn attention_bits(&self) -> Vec<u64> {
        let logits = self.forward(batch(1, 0..ROWS).0).as_vec();
        logits.into_iter().map(f64::to_bits).collect()
    }
}

#[test]
fn evaluations_are_shared_and_of_all_batches() {
    let alone = Threads::run(1, |rank| trainer(rank).evaluate_all(validation()).unwrap());
    let [Ok(expected)] = alone[..] else {
        panic!("one rank")
    };
    for ranks in 2..=3 {
        let losses = Threads::run(ranks, |rank| {
            let read = Mutex::new(0);
            let mut trainer = trainer(rank);
            let loss = trainer.evaluate_all(validation()).unwrap();
            let again = validation().inspect(|_| *read.lock().unwrap() += 1);
            let again = trainer.try_evaluate_all(again.map(Ok::<_, Infallible>));
            assert_eq!(again.unwrap(), loss);
            assert!(*read.lock().unwrap() >= 4);
            loss
        });
        let losses: Vec<_> = losses.into_iter().map(Result::unwrap).collect();
        assert!(losses.iter().all(|loss| *loss == losses[0]));
        assert!(
            (losses[0] - expected).abs() < 1e-12,
            "{losses:?}, {expected}"
        );
    }
}

#[test]
fn a_loss_that_differs_in_its_last_bit_does_not_part_the_ranks() {
    let states = Threads::run(2, |rank| {
        let mut trainer = trainer(rank);
        let (rank, batches) = (trainer.rank(), batches(&trainer, 0));
        let mut state = FitState::default();
        let config = FitConfig {
            patience: Some(1),
            ..config(40)
        };
        let end = trainer
            .fit(config)
            // Falls on rank 0 alone.
            .evaluate(|trainer| {
                let step = trainer.state().step as f64;
                Ok::<_, String>(if rank == 0 { 1.0 - step * 1e-16 } else { 1.0 })
            })
            .measure("rank", move |_| Ok::<_, String>(rank as f64))
            .run(batches, &mut state);
        (end.unwrap(), state)
    });
    let states: Vec<_> = states.into_iter().map(Result::unwrap).collect();
    assert_eq!(states[0], states[1]);
    assert_eq!(states[0].0, FitEnd::Done);
}

#[test]
fn rank_0_alone_records() {
    let folder = tempfile::tempdir().unwrap();
    let pages = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        let batches = batches(&trainer, 0);
        let mut state = FitState::default();
        let mut log = TrainingLog::replacing(folder.path(), &state)
            .unwrap()
            .quiet();
        let mut events = 0;
        trainer
            .fit(config(8))
            .evaluate(|trainer| trainer.evaluate_all(validation()))
            .observe(|state, event| {
                events += 1;
                log.observe(state, event)
            })
            .run(batches, &mut state)
            .unwrap();
        assert_eq!(events > 0, trainer.rank() == 0);
        log.report("Ranks").unwrap().page()
    });
    let page = pages.into_iter().next().unwrap().unwrap();
    for rank in 0..3 {
        for row in ["sent by", "waiting of"] {
            assert!(page.contains(&format!("{row} rank {rank}")), "{page}");
        }
    }
    assert!(!page.contains("sent by rank 3"));
    let records = Metrics::read(folder.path().join("metrics.jsonl")).unwrap();
    assert_eq!(Record::series(&records, "train_loss").len(), 8);
    assert_eq!(Record::series(&records, "validation_loss").len(), 3);
}

/// Two runs of one trainer, each of which counts from its own beginning.
#[test]
fn a_run_says_what_each_rank_has_sent_and_how_long_it_has_waited() {
    let runs = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        let mut runs = Vec::new();
        for _ in 0..2 {
            let batches = batches(&trainer, 0);
            let before = (trainer.bytes_sent(), trainer.waited());
            let mut events = Vec::new();
            trainer
                .fit(config(4))
                .observe(|_, event| {
                    if let FitEvent::Rank {
                        rank,
                        bytes_sent,
                        waited,
                    } = event
                    {
                        assert_eq!(rank, events.len());
                        events.push((bytes_sent, waited));
                    }
                    Ok::<_, String>(())
                })
                .run(batches, &mut FitState::default())
                .unwrap();
            let sent = trainer.bytes_sent() - before.0;
            runs.push(((sent, trainer.waited() - before.1), events));
        }
        runs
    });
    let runs: Vec<_> = runs.into_iter().map(Result::unwrap).collect();
    for (number, (_, events)) in runs[0].iter().enumerate() {
        assert_eq!(events.len(), 3);
        for (rank, (bytes_sent, waited)) in events.iter().enumerate() {
            let (most_sent, longest) = runs[rank][number].0;
            assert!((1..=most_sent).contains(bytes_sent));
            assert!(!waited.is_zero() && *waited <= longest);
        }
    }
}

#[test]
fn ranks_that_differ_are_refused_before_the_first_step() {
    let text = |rank: usize| match rank {
        2 => vec![1, 2, 4],
        _ => vec![1, 2, 3],
    };
    assert_all(
        ends(|_| 8, |rank, fit| fit.agree("data", &text(rank))),
        "rank 2 has other data than rank 0: copy the same files to all machines",
    );
    assert_all(
        ends(|rank| 8 + (rank == 1) as u64, |_, fit| fit),
        "rank 1 has another configuration of `fit` than rank 0",
    );
    assert_all(
        ends(|_| 8, |rank, fit| fit.accumulate(1 + rank)),
        "rank 1 has other parts of `fit` than rank 0",
    );
    let same = ends(|_| 8, |_, fit| fit.agree("data", &text(0)));
    assert!(same.iter().all(|end| matches!(end, Ok(FitEnd::Done))));
}

#[test]
fn a_rank_whose_batches_end_first_is_named() {
    let ends = Threads::run(3, |rank| {
        let mut trainer = trainer(rank);
        let count = 7 - trainer.rank();
        let batches = batches(&trainer, 0).take(count);
        let mut state = FitState::default();
        trainer.fit(config(9)).run(batches, &mut state)
    });
    let ends: Vec<_> = ends.into_iter().map(Result::unwrap).collect();
    for end in &ends {
        assert!(
            matches!(end, Err(FitError::Batches { rank: 2, step: 5 })),
            "{end:?}"
        );
    }
    assert_all(ends, "rank 2 has no more batches after step 5");
    let ends = Threads::run(2, |rank| {
        let mut trainer = trainer(rank);
        let batches = batches(&trainer, 0).take(5);
        trainer
            .fit(config(9))
            .run(batches, &mut FitState::default())
    });
    assert!(
        ends.into_iter()
            .all(|end| matches!(end, Ok(Ok(FitEnd::NoMoreBatches))))
    );
}

/// Whatever fails on one rank ends all, which name it, and the last checkpoint loads.
#[test]
fn a_rank_that_fails_in_the_loop_is_named_and_the_last_checkpoint_loads() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum How {
        Observes,
        Evaluates,
        Reads,
        Panics,
    }
    for how in [How::Observes, How::Evaluates, How::Reads, How::Panics] {
        let folder = tempfile::tempdir().unwrap();
        let fails = |rank: usize, at: How, step: u64| match rank == 0 && at == how && step >= 6 {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => Ok(()),
        };
        let ends = Threads::run(3, |mut ranks| {
            let run = Checkpoints::new(folder.path()).run_across(&mut ranks, false);
            let run = run.unwrap();
            let mut trainer = trainer(ranks);
            let rank = trainer.rank();
            let batches = batches(&trainer, 0).zip(0..).map(|(batch, step)| {
                assert!(fails(rank, How::Panics, step).is_ok(), "on purpose");
                fails(rank, How::Reads, step).map(|()| batch.unwrap())
            });
            let mut state = FitState::default();
            trainer
                .fit(config(12))
                .evaluate(|trainer| {
                    fails(rank, How::Evaluates, trainer.state().step)?;
                    trainer.evaluate_all(validation()).map_err(io::Error::other)
                })
                .save(|trainer, state| run.save(state, trainer.contents()))
                .observe(|state, _| fails(rank, How::Observes, state.step))
                .run(batches, &mut state)
        });
        for (rank, end) in ends.into_iter().enumerate() {
            match (rank, end) {
                (0, Err(_)) => assert_eq!(how, How::Panics),
                (_, end) => {
                    let error = end.unwrap().unwrap_err().to_string();
                    let reason = match how {
                        How::Panics => "it has panicked",
                        _ => "no storage space",
                    };
                    assert!(error.contains(reason), "{how:?}: {error}");
                    assert!(rank == 0 || error.contains("rank 0 has failed"), "{error}");
                }
            }
        }
        let goes_on = Threads::run(2, |mut ranks| {
            let run = Checkpoints::new(folder.path()).run_across(&mut ranks, true);
            let run = run.unwrap();
            let mut trainer = trainer(ranks);
            let mut state = run.load(&mut trainer).unwrap();
            let batches = batches(&trainer, state.step);
            let begin = state.step;
            trainer.fit(config(9)).run(batches, &mut state).unwrap();
            begin
        });
        assert!(
            goes_on.into_iter().all(|step| step.unwrap() == 4),
            "{how:?}"
        );
    }
}

/// The errors of two ranks, of which rank 1 fails.
fn errors(run: impl Fn(&mut Gpts, bool) -> Result<(), String> + Sync) -> [String; 2] {
    let ends = Threads::run(2, |rank| {
        let mut trainer = trainer(rank);
        let fails = trainer.rank() == 1;
        run(&mut trainer, fails).unwrap_err()
    });
    let mut ends = ends.into_iter().map(Result::unwrap);
    [ends.next().unwrap(), ends.next().unwrap()]
}

#[test]
fn a_validation_batch_that_one_rank_cannot_read_ends_all() {
    for of_averages in [false, true] {
        let [of_0, of_1] = errors(|trainer, fails| {
            let batches =
                validation()
                    .enumerate()
                    .map(|(number, batch)| match fails && number == 3 {
                        true => Err(io::Error::other("cannot be read")),
                        false => Ok(batch),
                    });
            let evaluated = match of_averages {
                false => trainer.try_evaluate_all(batches),
                true => {
                    let averaged = trainer.averaged();
                    let mut averaged = averaged.map_err(|error| error.to_string())?;
                    averaged.try_evaluate_all(batches)
                }
            };
            evaluated.map(drop).map_err(|error| error.to_string())
        });
        assert_eq!(of_1, "cannot be read");
        assert_eq!(
            of_0,
            "rank 1 has failed, so this one ends in its sum: cannot be read"
        );
    }
}

#[test]
fn a_rank_that_cannot_begin_ends_all() {
    let names = std::sync::Barrier::new(2);
    let ends = Threads::run(2, |rank| {
        let trainer = trainer(rank);
        let mut trainer = match trainer.rank() {
            1 => trainer.freeze("attention.*"),
            _ => trainer,
        };
        let batches = batches(&trainer, 0);
        let fit = trainer.fit(config(5));
        let error = fit.run(batches, &mut FitState::default()).unwrap_err();
        // No rank leaves before both have heard of it.
        names.wait();
        error.to_string()
    });
    let [of_0, of_1] = [0, 1].map(|rank| ends[rank].as_ref().unwrap());
    assert!(of_1.contains("attention.*"), "{of_1}");
    assert!(of_0.starts_with("rank 1 has failed"), "{of_0}");
    assert!(of_0.ends_with(&**of_1), "{of_0}");
}

#[test]
fn a_rank_that_fails_in_a_loop_of_its_own_ends_all() {
    for observes in [false, true] {
        let [of_0, of_1] = errors(|trainer, fails| {
            let batches = batches(trainer, 0).zip(0..).map(|(batch, step)| {
                match fails && !observes && step == 2 {
                    true => Err(io::Error::other("cannot be read")),
                    false => Ok(batch.unwrap()),
                }
            });
            let observe = |state: &FitState, _: FitEvent| match fails && observes && state.step == 2
            {
                true => Err(TrainError::NoBatch),
                false => Ok(ControlFlow::Continue(())),
            };
            let mut state = FitState::default();
            let ended = fit(trainer, batches, config(5), &mut state, observe);
            ended.map(drop).map_err(|error| error.to_string())
        });
        assert_eq!(
            of_0,
            format!("rank 1 has failed, so this one ends in its sum: {of_1}")
        );
    }
}

#[test]
fn a_folder_that_ranks_do_not_share_is_refused_before_the_first_step() {
    let all = tempfile::tempdir().unwrap();
    let runs = Threads::run(2, |mut ranks| {
        let folder = all
            .path()
            .join(attn::train::Collective::rank(&ranks).to_string());
        Checkpoints::new(folder)
            .run_across(&mut ranks, false)
            .map(drop)
    });
    let errors = runs.into_iter().map(|run| run.unwrap().unwrap_err());
    let errors: Vec<_> = errors.collect();
    assert!(matches!(errors[1].problem, Problem::NotShared { rank: 1 }));
    for error in errors {
        let error = error.to_string();
        assert!(
            error.contains("must be on a file system that all ranks share"),
            "{error}"
        );
        assert!(error.contains("rank 1"), "{error}");
    }
    // A run that is there is refused on all ranks, too.
    let folder = all.path().join("run");
    fs::create_dir_all(&folder).unwrap();
    let _lock = Checkpoints::new(&folder).lock_run().unwrap();
    let runs = Threads::run(2, |mut ranks| {
        Checkpoints::new(&folder)
            .run_across(&mut ranks, false)
            .map(drop)
    });
    for run in runs {
        let error = run.unwrap().unwrap_err().to_string();
        assert!(
            error.contains("another run is using this folder"),
            "{error}"
        );
    }
}

#[test]
fn the_parts_of_a_batch_are_those_of_one_process() {
    let text: Vec<usize> = (0..200).map(|i| i * i % 11).collect();
    let of = |rank, ranks| {
        let blocks = RandomBlocks::new(&text, (5, 4), 7, &Cpu::default()).unwrap();
        let blocks = blocks.at(3).of_rank(rank, ranks).unwrap();
        let batches = blocks.take(3).map(|batch| {
            let batch = batch.unwrap();
            assert_eq!(batch.ids.shape(), batch.targets.shape());
            [batch.ids.as_vec(), batch.targets.as_vec()]
        });
        batches.collect::<Vec<_>>()
    };
    let whole = of(0, 1);
    for ranks in 2..=5 {
        let parts: Vec<_> = (0..ranks).map(|rank| of(rank, ranks)).collect();
        for (number, whole) in whole.iter().enumerate() {
            for part in 0..2 {
                let joined = parts.iter().map(|of| of[number][part].clone());
                assert_eq!(joined.collect::<Vec<_>>().concat(), whole[part]);
            }
        }
    }
    let blocks = RandomBlocks::new(&text, (2, 4), 7, &Cpu::default()).unwrap();
    let error = blocks.of_rank(0, 3).unwrap_err().to_string();
    assert_eq!(
        error,
        "a batch of 2 has no part for each of 3 ranks: take larger batches, or fewer ranks"
    );
}
