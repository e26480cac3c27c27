//! `Trainer::fit`: the loop with evaluations, measures, checkpoints, records and an early end.

use attn::{
    batches::{Blocks, RandomBlocks},
    checkpoint::{Checkpoints, LoadOptions},
    dfdx::prelude::*,
    model,
    train::{
        AdamWConfig, Cosine, FitConfig, FitEnd, FitError, FitEvent, FitState, TrainError, Trainer,
        fit,
    },
    viz::{Metrics, Record, TrainingLog},
};
use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

model! {
    pub(crate) struct Net<vocab = 7, d = 8>;

    fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
        linear::<vocab>(dropout::<0.1>(embedding::<vocab, d>(ids)))
    }

    fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(ids), targets)
    }
}

pub(crate) type NetTrainer = Trainer<Net<f32, Cpu>, AdamWConfig>;

pub(crate) fn trainer() -> NetTrainer {
    let model = Cpu::seed_from_u64(1).build_module::<Net, f32>();
    let rates = Cosine {
        highest: 0.02,
        lowest: 0.0,
        warm_up: 4,
        steps: 20,
    };
    model.trainer(AdamWConfig::default()).schedule(rates)
}

pub(crate) fn text() -> Vec<usize> {
    (0..100).map(|i| i * i % 7).collect()
}

fn config(steps: u64, evaluate_every: u64) -> FitConfig {
    FitConfig {
        steps,
        evaluate_every,
        ..FitConfig::default()
    }
}

/// Up to 20 steps in this folder, or to the one after which it is stopped.
fn run(folder: &Path, stop: u64) -> (FitEnd, FitState, Vec<u32>) {
    run_to(folder, |state, _| state.step == stop)
}

/// Up to 20 steps in this folder, or to what is stopped at.
fn run_to(
    folder: &Path,
    stop: impl Fn(&FitState, FitEvent) -> bool,
) -> (FitEnd, FitState, Vec<u32>) {
    let text = text();
    let device = Cpu::default();
    let mut trainer = trainer();
    let checkpoints = Checkpoints::new(folder);
    let mut state = FitState::default();
    if let Some(latest) = checkpoints.latest().unwrap() {
        trainer.load(&latest, LoadOptions::default()).unwrap();
        state = latest.json("fit.json").unwrap();
    }
    let batches = RandomBlocks::new(&text, (4, 5), 3, &device).unwrap();
    let batches = batches.at(state.step).pairs();
    let validation = Blocks::new(&text, (8, 9), &device).unwrap().pairs();
    let validation: Vec<_> = validation.collect::<Result<_, _>>().unwrap();
    let mut log = TrainingLog::new(folder, &state).unwrap().quiet();
    let stopped = AtomicBool::new(false);
    let end = trainer
        .fit(config(20, 8))
        .evaluate(|trainer| trainer.evaluate_all(validation.iter().cloned()))
        .measure("steps", |trainer| {
            Ok::<_, CpuError>(trainer.state().step as f64)
        })
        .save(|trainer, state| {
            let contents = trainer.contents().json("fit.json", state);
            let saved = checkpoints.save(state.step, &contents, state.measured());
            saved.map(drop)
        })
        .observe(|state, event| log.observe(state, event))
        .observe(|state, event| {
            stopped.store(stop(state, event), Ordering::Relaxed);
            Ok::<_, CpuError>(())
        })
        .stop(&stopped)
        .run(batches, &mut state)
        .unwrap();
    let weight = trainer.model().linear.weight.as_vec().into_iter();
    (end, state, weight.map(f32::to_bits).collect())
}

#[test]
fn a_stopped_run_goes_on_to_the_same_bits_and_the_same_records() {
    let whole = tempfile::tempdir().unwrap();
    let (end, state, bits) = run(whole.path(), 99);
    assert_eq!(end, FitEnd::Done);
    let steps: Vec<u64> = state.evaluations.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [0, 8, 16, 20]);
    assert!(state.evaluations[3].1 < state.evaluations[0].1);
    let metrics = |folder: &Path| fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    // In the middle, at an evaluation, at the last step but one; before the first step too.
    for stop in [0, 3, 8, 19] {
        let parts = tempfile::tempdir().unwrap();
        let (end, state_then, _) = run(parts.path(), stop);
        assert_eq!((end, state_then.step), (FitEnd::Stopped, stop));
        let (end, state_now, bits_now) = run(parts.path(), 99);
        assert_eq!(end, FitEnd::Done);
        assert_eq!(state_now, state);
        assert_eq!(bits_now, bits);
        assert_eq!(metrics(parts.path()), metrics(whole.path()));
    }
}

#[test]
fn a_run_that_is_stopped_while_it_measures_does_not_measure_again() {
    let whole = tempfile::tempdir().unwrap();
    run(whole.path(), 99);
    let parts = tempfile::tempdir().unwrap();
    let is_measure = |_: &FitState, event| matches!(event, FitEvent::Measured(..));
    let (end, state, _) = run_to(parts.path(), is_measure);
    assert_eq!((end, state.step), (FitEnd::Stopped, 0));
    run(parts.path(), 99);
    let metrics = |folder: &Path| fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    assert_eq!(metrics(parts.path()), metrics(whole.path()));
}

/// As by Ctrl-C, which may come at any time: no further step is taken.
#[test]
fn a_run_that_is_stopped_while_it_evaluates_or_saves_takes_no_further_step() {
    for at in [
        |event| matches!(event, FitEvent::Evaluated(_)),
        |event| matches!(event, FitEvent::Measured(..)),
        |event| matches!(event, FitEvent::Saved),
    ] as [fn(FitEvent) -> bool; 3]
    {
        let folder = tempfile::tempdir().unwrap();
        let is_there = |state: &FitState, event| state.step == 8 && at(event);
        let (end, state, _) = run_to(folder.path(), is_there);
        assert_eq!((end, state.step), (FitEnd::Stopped, 8));
    }
}

#[test]
fn the_records_of_another_run_are_replaced_on_request_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics.jsonl");
    fs::write(&file, "{\"step\":1,\"train_loss\":2.0}\n").unwrap();
    let new = FitState::default();
    let error = TrainingLog::new(folder.path(), &new).unwrap_err();
    assert!(
        error.to_string().contains("there are those of another"),
        "{error}"
    );
    assert_eq!(Metrics::read(&file).unwrap().len(), 1);
    let started = FitEvent::Started(config(1, 0));
    let mut log = TrainingLog::replacing(folder.path(), &new).unwrap().quiet();
    // Of several ranks, one alone is told that the run begins.
    assert_eq!(Metrics::read(&file).unwrap().len(), 1);
    log.observe(&new, started).unwrap();
    assert_eq!(Metrics::read(&file).unwrap(), []);
    // A run that was killed before its first step has none of steps.
    fs::write(&file, "{\"step\":0,\"validation_loss\":2.0}\n").unwrap();
    let mut log = TrainingLog::new(folder.path(), &new).unwrap().quiet();
    log.observe(&new, started).unwrap();
    assert_eq!(Metrics::read(&file).unwrap(), []);
}

#[test]
fn each_measured_number_has_a_name_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = FitState::default();
    let mut log = TrainingLog::new(folder.path(), &state)
        .unwrap()
        .quiet()
        .work(20, "tokens");
    let mut refused = |state: &FitState, name| {
        let observed = log.observe(state, FitEvent::Measured(name, 1.0));
        observed.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&state, "right"), None);
    let error = refused(&state, "right").unwrap();
    assert!(error.contains("there are two of them"), "{error}");
    for name in ["train_loss", "validation_loss", "tokens_per_second"] {
        let error = refused(&state, name).unwrap();
        assert!(error.contains("it is recorded in any case"), "{error}");
    }
    state.step = 1;
    assert_eq!(refused(&state, "right"), None);
}

#[test]
fn all_metrics_are_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let (_, state, _) = run(folder.path(), 99);
    let records = Metrics::read(folder.path().join("metrics.jsonl")).unwrap();
    let series = |name| Record::series(&records, name);
    assert_eq!(series("validation_loss"), state.evaluations);
    assert_eq!(
        series("steps"),
        [(0, 0.0), (8, 8.0), (16, 16.0), (20, 20.0)]
    );
    let rates = series("learning_rate");
    assert_eq!(
        (rates.len(), rates[0], rates[3]),
        (20, (1, 0.005), (4, 0.02))
    );
    let norms = series("gradient_norm");
    assert!(norms.len() == 20 && norms.iter().all(|(_, norm)| *norm > 0.0));
    assert_eq!(series("train_loss").len(), 20);
    assert!(series("tokens_per_second").is_empty());
}

#[test]
fn the_report_has_the_results_and_the_speed_is_recorded_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let state = FitState::default();
    let mut log = TrainingLog::new(folder.path(), &state)
        .unwrap()
        .quiet()
        .work(20, "tokens")
        .baseline("a guess", 1.9)
        .times(true);
    let batches = RandomBlocks::new(text(), (4, 5), 3, &Cpu::default()).unwrap();
    let mut state = state;
    trainer()
        .fit(config(2, 0))
        .evaluate(|_| Ok::<_, CpuError>(1.25))
        .measure("right", |_| Ok::<_, CpuError>(0.5))
        .observe(|state, event| log.observe(state, event))
        .run(batches.pairs(), &mut state)
        .unwrap();
    let speed = Record::series(&log.records().unwrap(), "tokens_per_second");
    assert!(speed.len() == 2 && speed.iter().all(|(_, speed)| *speed > 0.0));
    let page = log.report("A run").unwrap().page();
    for part in [
        "<h1>A run</h1>",
        "validation loss</th><td>1.250 after step 2",
        "lowest validation loss</th><td>1.250 after step 0",
        "right</th><td>0.500 after step 2",
        "a guess</th><td>1.900",
        "learning rate</th>",
        "gradient norm</th>",
        "tokens per second</th>",
        "data:image/svg+xml",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn batches_count_by_their_targets() {
    let mut trainer = trainer();
    let device = Cpu::default();
    let batch = |[rows, length]: [usize; 2]| {
        let ids: Vec<usize> = (0..rows * length).map(|i| i * rows % 7).collect();
        let ids = device.tensor_from_vec(ids, (rows, length));
        (ids.clone(), ids)
    };
    let [short, long] = [[4, 1], [2, 5]];
    let [of_short, of_long] = [short, long].map(|size| trainer.evaluate(batch(size)).unwrap());
    let sizes = [short, long, [0, 5], [3, 0]];
    let all = trainer.evaluate_all(sizes.map(batch)).unwrap();
    // A rounding or two.
    assert!((all - (4.0 * of_short + 10.0 * of_long) / 14.0).abs() < 1e-12);
    for nothing in [vec![], vec![[0, 5]]] {
        let refused = trainer.evaluate_all(nothing.into_iter().map(batch));
        assert!(matches!(refused, Err(TrainError::NoTargets)), "{refused:?}");
    }
}

#[test]
fn the_error_of_a_part_is_the_error_of_the_run() {
    let refused = |part: &str| {
        let failure = |this: &str| match this == part {
            true => Err(format!("the {this} failed")),
            false => Ok(()),
        };
        let batches = RandomBlocks::new(text(), (4, 5), 3, &Cpu::default()).unwrap();
        let batches = batches.pairs().map(|batch| match part {
            "batch" => Err("the batch failed".to_owned()),
            _ => batch.map_err(|error| error.to_string()),
        });
        let mut state = FitState::default();
        let error = trainer()
            .fit(config(2, 1))
            .evaluate(|_| failure("evaluation").map(|()| 1.0))
            .measure("right", |_| failure("measure").map(|()| 1.0))
            .save(|_, _| failure("checkpoint"))
            .observe(|_, event| match event {
                FitEvent::Step(_) => failure("observer"),
                _ => Ok(()),
            })
            .run(batches, &mut state)
            .unwrap_err();
        let is_batch = matches!(error, FitError::Batch(_));
        assert_eq!(is_batch, part == "batch");
        (error.to_string(), state.step)
    };
    for (part, step) in [
        ("evaluation", 0),
        ("measure", 0),
        ("batch", 0),
        ("observer", 1),
        ("checkpoint", 1),
    ] {
        assert_eq!(refused(part), (format!("the {part} failed"), step));
    }
}

#[derive(Debug)]
struct Caused(std::num::ParseIntError);

impl std::fmt::Display for Caused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no checkpoint")
    }
}

impl std::error::Error for Caused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_error_is_told_once_with_its_cause() {
    let refused = |of_batch: bool| {
        let caused = || "x".parse::<u8>().map(drop).map_err(Caused);
        let batches = RandomBlocks::new(text(), (4, 5), 3, &Cpu::default()).unwrap();
        let batches = batches.pairs().map(|batch| match of_batch {
            true => Err(caused().unwrap_err()),
            false => Ok(batch.unwrap()),
        });
        let mut state = FitState::default();
        let mut trainer = trainer();
        let run = trainer.fit(config(1, 0)).save(|_, _| caused());
        run.run(batches, &mut state).unwrap_err()
    };
    for of_batch in [true, false] {
        let error = refused(of_batch);
        let mut chain = Vec::new();
        let mut next: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = next {
            chain.push(error.to_string());
            next = error.source();
        }
        assert_eq!(chain, ["no checkpoint", "invalid digit found in string"]);
    }
}

#[test]
fn a_step_that_fails_is_told_with_its_operation() {
    let mut trainer = trainer();
    trainer.model_mut().linear.bias = Cpu::default().tensor([f32::NAN; 7]);
    let batches = RandomBlocks::new(text(), (4, 5), 3, &Cpu::default()).unwrap();
    let mut state = FitState::default();
    let run = trainer.fit(config(2, 0)).run(batches.pairs(), &mut state);
    let error = run.unwrap_err().to_string();
    assert!(error.starts_with("step 1: the loss is NaN"), "{error}");
    assert!(error.contains("the result of `linear`"), "{error}");
}

/// Each step is on the mean of its batches, and so are its loss and the resumed steps.
#[test]
fn a_step_accumulates_batches() {
    let text = text();
    let all = || {
        let blocks = RandomBlocks::new(&text, (4, 5), 3, &Cpu::default()).unwrap();
        blocks.pairs().take(10)
    };
    let bits = |trainer: &mut NetTrainer| {
        let weight = trainer.model().linear.weight.as_vec().into_iter();
        weight.map(f32::to_bits).collect::<Vec<_>>()
    };
    // 4, 4 and the last 2.
    let mut by_hand = trainer();
    let mut losses = Vec::new();
    let batches: Vec<_> = all().collect::<Result<_, _>>().unwrap();
    for of_step in batches.chunks(4) {
        for batch in of_step {
            by_hand.accumulate(batch.clone()).unwrap();
        }
        losses.push(by_hand.apply().unwrap().loss);
    }
    let mut fitted = trainer();
    let mut state = FitState::default();
    let mut found = Vec::new();
    let mut run = |steps: u64, state: &mut FitState| {
        let behind = all().skip(4 * state.step as usize);
        fitted
            .fit(config(steps, 0))
            .accumulate(4)
            .observe(|_, event| {
                if let FitEvent::Step(report) = event {
                    found.push(report.loss);
                }
                Ok::<_, CpuError>(())
            })
            .run(behind, state)
            .unwrap()
    };
    assert_eq!(run(1, &mut state), FitEnd::Done);
    assert_eq!(run(9, &mut state), FitEnd::NoMoreBatches);
    assert_eq!((state.step, &found), (3, &losses));
    assert_eq!(bits(&mut fitted), bits(&mut by_hand));
}

#[test]
fn a_state_goes_on_with_the_optimizer_that_took_its_steps() {
    let text = text();
    let batches = || {
        let blocks = RandomBlocks::new(&text, (4, 5), 3, &Cpu::default()).unwrap();
        blocks.pairs()
    };
    let mut state = FitState::default();
    let mut first = trainer();
    first.fit(config(2, 0)).run(batches(), &mut state).unwrap();
    let before = state.clone();

    // A new trainer has none of the two steps.
    let mut other = trainer();
    let run = other.fit(config(3, 0)).run(batches(), &mut state);
    let of_run = run.unwrap_err().to_string();
    let steps = fit(&mut other, batches(), config(3, 0), &mut state, |_, _| {
        Ok(ControlFlow::Continue(()))
    });
    let of_steps = steps.unwrap_err();
    assert!(matches!(
        of_steps,
        FitError::OtherState {
            state: 2,
            optimizer: 0
        }
    ));
    let expected = "the state of `fit` is that of step 2, but the optimizer has taken 0 steps: ";
    assert!(of_run.starts_with(expected), "{of_run}");
    assert_eq!(of_steps.to_string(), of_run);
    assert_eq!((&state, other.state().step), (&before, 0));

    let end = first.fit(config(3, 0)).run(batches(), &mut state).unwrap();
    assert_eq!((end, state.step), (FitEnd::Done, 3));
    // An optimizer takes no step that is skipped.
    let mut skipped = FitState {
        step: 2,
        skipped: 2,
        ..FitState::default()
    };
    let end = other.fit(config(3, 0)).run(batches(), &mut skipped);
    assert_eq!(end.unwrap(), FitEnd::Done);
}

#[test]
fn batches_before_one_that_is_refused_are_forgotten() {
    let dev = Cpu::default();
    let ids = |id: usize| dev.tensor_from_vec(vec![0, id], (1, 2));
    let mut trainer = trainer();
    let batches = [3, 4, 99].map(|id| Ok::<_, CpuError>((ids(id), ids(1))));
    let error = trainer
        .fit(config(1, 0))
        .accumulate(3)
        .run(batches, &mut FitState::default())
        .unwrap_err();
    assert!(error.to_string().contains("99"), "{error}");
    assert!(matches!(trainer.apply(), Err(TrainError::NoBatch)));
}
