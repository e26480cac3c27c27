//! `train::fit`: when it evaluates, saves and ends, and that a resumed run is the same as one that was not interrupted.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

mod parts;
mod run_folder;

use attn::{
    batches::{RandomBlocks, TokenBatch},
    checkpoint::{Checkpoints, Contents, LoadOptions},
    dfdx::prelude::*,
    nn::{Embedding, Linear},
    ops::cross_entropy,
    train::{
        AdamW, FitConfig, FitEnd, FitError, FitEvent, FitState, Learner, StepReport,
        clip_grad_norm, fit,
    },
};
use std::{ops::ControlFlow, path::Path};

/// Learns nothing, and has these validation losses.
#[derive(Default)]
struct Script {
    validation: Vec<f64>,
    steps: Vec<u64>,
    /// The steps with a checkpoint, and what was measured there.
    saved: Vec<(u64, Option<f64>)>,
}

impl Learner<u64> for Script {
    type Error = String;

    fn step(&mut self, batch: u64) -> Result<StepReport, String> {
        self.steps.push(batch);
        match batch {
            666 => Err("a step failed".into()),
            777 => Ok(StepReport {
                loss: f64::NAN,
                grad_norm: 1.0,
                ..StepReport::default()
            }),
            _ => Ok(StepReport {
                loss: batch as f64,
                grad_norm: 1.0,
                ..StepReport::default()
            }),
        }
    }

    fn evaluate(&mut self) -> Result<Option<f64>, String> {
        match self.validation.is_empty() {
            true => Ok(None),
            false => Ok(Some(self.validation.remove(0))),
        }
    }

    fn save(&mut self, state: &FitState) -> Result<(), String> {
        self.saved.push((state.step, state.measured()));
        Ok(())
    }
}

fn config(steps: u64, evaluate_every: u64, patience: Option<u64>) -> FitConfig {
    FitConfig {
        steps,
        evaluate_every,
        patience,
        ..FitConfig::default()
    }
}

fn batches(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Result<u64, String>> {
    numbers.into_iter().map(Ok).collect::<Vec<_>>().into_iter()
}

fn go_on(_: &FitState, _: FitEvent) -> Result<ControlFlow<()>, String> {
    Ok(ControlFlow::Continue(()))
}

#[test]
fn it_evaluates_before_the_first_step_at_each_interval_and_after_the_last() {
    let mut script = Script {
        validation: vec![5.0, 4.0, 3.0, 2.0],
        ..Script::default()
    };
    let mut state = FitState::default();
    let mut events = Vec::new();
    let end = fit(
        &mut script,
        batches(1..100),
        config(7, 3, None),
        &mut state,
        |state, event| {
            let kind = match event {
                FitEvent::Step(_) => 's',
                FitEvent::Evaluated(_) => 'e',
                FitEvent::Measured(..) => 'm',
                FitEvent::Saving => 'b',
                FitEvent::Saved => 'c',
                FitEvent::Started(_) => 'a',
                _ => '?',
            };
            events.push(format!("{kind}{}", state.step));
            Ok(ControlFlow::Continue(()))
        },
    );
    assert_eq!(end.unwrap(), FitEnd::Done);
    assert_eq!(
        events.join(" "),
        "a0 e0 s1 s2 s3 e3 b3 c3 s4 s5 s6 e6 b6 c6 s7 e7 b7 c7"
    );
    assert_eq!(state.evaluations, [(0, 5.0), (3, 4.0), (6, 3.0), (7, 2.0)]);
    assert_eq!(
        script.saved,
        [(3, Some(4.0)), (6, Some(3.0)), (7, Some(2.0))]
    );
    assert_eq!(script.steps, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(state.best(), Some((7, 2.0)));
}

/// Checkpoints at their own interval, after a new lowest loss, and at the end.
#[test]
fn checkpoints_have_an_interval_of_their_own() {
    let run = |validation: Vec<f64>, config| {
        let mut script = Script {
            validation,
            ..Script::default()
        };
        let mut state = FitState::default();
        let end = fit(&mut script, batches(1..100), config, &mut state, go_on);
        (end.unwrap(), script.saved)
    };
    let every_two = FitConfig {
        save_every: 2,
        ..config(7, 3, None)
    };
    let (end, saved) = run(vec![5.0, 4.0, 6.0, 5.0], every_two);
    assert_eq!(end, FitEnd::Done);
    assert_eq!(
        saved,
        [
            (2, None),
            (3, Some(4.0)),
            (4, None),
            (6, Some(6.0)),
            (7, Some(5.0))
        ]
    );
    let rarely = FitConfig {
        save_every: 50,
        ..config(7, 1, Some(2))
    };
    let (end, saved) = run(vec![5.0, 3.0, 4.0, 3.5], rarely);
    assert_eq!(end, FitEnd::NotBetter);
    assert_eq!(saved, [(1, Some(3.0)), (3, Some(3.5))]);
    // Without an evaluation.
    let alone = FitConfig {
        save_every: 3,
        ..config(7, 0, None)
    };
    let (_, saved) = run(vec![], alone);
    assert_eq!(saved, [(3, None), (6, None), (7, None)]);
}

#[test]
fn whoever_observes_knows_the_settings_first_and_may_stop_there() {
    let mut script = Script {
        validation: vec![5.0],
        ..Script::default()
    };
    let mut state = FitState::default();
    let mut events = Vec::new();
    let settings = config(7, 3, None);
    let end = fit(
        &mut script,
        batches(1..9),
        settings,
        &mut state,
        |_, event| {
            events.push(event);
            Ok(ControlFlow::Break(()))
        },
    );
    assert_eq!(end.unwrap(), FitEnd::Stopped);
    assert_eq!(events, [FitEvent::Started(settings)]);
    assert_eq!((state, script.saved), (FitState::default(), vec![]));
}

#[test]
fn the_shown_loss_starts_with_the_first_and_follows_slowly() {
    let mut state = FitState::default();
    let losses = |state: &mut FitState, steps| {
        fit(
            &mut Script::default(),
            batches([4, 3]),
            config(steps, 0, None),
            state,
            go_on,
        )
        .unwrap();
        state.loss.unwrap()
    };
    assert_eq!(losses(&mut state, 1), 4.0);
    let mut state = FitState::default();
    // The error of a rounding or two.
    assert!((losses(&mut state, 2) - 3.9).abs() < 1e-12);
}

#[test]
fn patience_ends_it_when_the_loss_does_not_fall() {
    let losses = vec![5.0, 3.0, 3.0, 4.0, 2.0, 2.5, 2.6, 1.0];
    let run = |patience| {
        let mut script = Script {
            validation: losses.clone(),
            ..Script::default()
        };
        let mut state = FitState::default();
        let end = fit(
            &mut script,
            batches(1..100),
            config(7, 1, patience),
            &mut state,
            go_on,
        );
        (end.unwrap(), state.step, state.best().unwrap())
    };
    assert_eq!(run(None), (FitEnd::Done, 7, (7, 1.0)));
    assert_eq!(run(Some(3)), (FitEnd::Done, 7, (7, 1.0)));
    // An equal loss is not lower.
    assert_eq!(run(Some(2)), (FitEnd::NotBetter, 3, (1, 3.0)));
    assert_eq!(run(Some(1)), (FitEnd::NotBetter, 2, (1, 3.0)));
}

#[test]
fn whoever_observes_may_stop_it_and_what_is_done_is_saved() {
    let run = |at: u64, batch_count| {
        let mut script = Script {
            validation: vec![5.0; 9],
            ..Script::default()
        };
        let mut state = FitState::default();
        let end = fit(
            &mut script,
            batches(1..=batch_count),
            config(7, 3, None),
            &mut state,
            |state, event| match event {
                FitEvent::Step(_) if state.step == at => Ok(ControlFlow::Break(())),
                _ => Ok(ControlFlow::Continue(())),
            },
        );
        (end.unwrap(), script.saved)
    };
    assert_eq!(run(2, 99), (FitEnd::Stopped, vec![(2, None)]));
    assert_eq!(run(3, 99), (FitEnd::Stopped, vec![(3, Some(5.0))]));
    assert_eq!(run(7, 99).0, FitEnd::Done);
    assert_eq!(
        run(0, 4),
        (FitEnd::NoMoreBatches, vec![(3, Some(5.0)), (4, Some(5.0))])
    );
}

#[test]
fn a_run_that_has_ended_takes_no_step_when_it_is_resumed() {
    let mut state = FitState::default();
    let mut script = Script {
        validation: vec![3.0, 4.0],
        ..Script::default()
    };
    let mut run = |state: &mut FitState| {
        let numbers = batches(1..9);
        fit(&mut script, numbers, config(7, 1, Some(1)), state, go_on).unwrap()
    };
    assert_eq!(run(&mut state), FitEnd::NotBetter);
    assert_eq!(state.step, 1);
    assert_eq!(run(&mut state), FitEnd::NotBetter);
    assert_eq!(state.step, 1);
}

#[test]
fn a_run_without_more_batches_is_evaluated_once_although_a_stop_saved_it() {
    let mut script = Script {
        validation: vec![5.0, 4.0],
        ..Script::default()
    };
    let mut state = FitState::default();
    let mut run = |state: &mut FitState, stop: u64, numbers: std::ops::Range<u64>| {
        let observe = |state: &FitState, _| match state.step == stop {
            true => Ok(ControlFlow::Break(())),
            false => Ok(ControlFlow::Continue(())),
        };
        fit(
            &mut script,
            batches(numbers),
            config(9, 0, None),
            state,
            observe,
        )
        .unwrap()
    };
    assert_eq!(run(&mut state, 4, 1..5), FitEnd::Stopped);
    assert_eq!(state.evaluations, [(0, 5.0)]);
    for _ in 0..2 {
        assert_eq!(run(&mut state, 99, 0..0), FitEnd::NoMoreBatches);
        assert_eq!(state.evaluations, [(0, 5.0), (4, 4.0)]);
    }
    assert_eq!(script.saved, [(4, None), (4, Some(4.0))]);
}

#[test]
fn a_run_without_steps_is_evaluated_and_one_that_is_stopped_there_is_saved() {
    let run = |steps: u64, stops: bool| {
        let mut script = Script {
            validation: vec![3.0],
            ..Script::default()
        };
        let mut state = FitState::default();
        let end = fit(
            &mut script,
            batches(1..9),
            config(steps, 1, None),
            &mut state,
            |_, event| match event {
                FitEvent::Evaluated(_) if stops => Ok(ControlFlow::Break(())),
                _ => Ok(ControlFlow::Continue(())),
            },
        );
        (end.unwrap(), state.evaluations, script.saved)
    };
    let evaluations = vec![(0, 3.0)];
    assert_eq!(run(0, false), (FitEnd::Done, evaluations.clone(), vec![]));
    let saved = vec![(0, Some(3.0))];
    assert_eq!(run(5, true), (FitEnd::Stopped, evaluations, saved));
}

#[test]
fn errors_and_losses_that_are_no_numbers_end_it_before_anything_is_saved() {
    let run = |numbers: &[u64], validation: Vec<f64>| {
        let mut script = Script {
            validation,
            ..Script::default()
        };
        let mut state = FitState::default();
        let numbers = batches(numbers.to_vec());
        let error = fit(&mut script, numbers, config(2, 1, None), &mut state, go_on);
        (error.unwrap_err(), state.step, script.saved.len())
    };
    let (error, step, saved) = run(&[1, 666], vec![]);
    assert!(matches!(error, FitError::Failed(of) if of == "a step failed"));
    assert_eq!((step, saved), (1, 1));
    let (error, step, saved) = run(&[777], vec![]);
    assert_eq!((step, saved), (0, 0));
    assert!(
        error
            .to_string()
            .starts_with("the training loss is NaN after step 1"),
        "{error}"
    );
    let (error, step, saved) = run(&[1], vec![1.0, f64::INFINITY]);
    assert_eq!((step, saved), (1, 0));
    assert!(
        error
            .to_string()
            .starts_with("the validation loss is inf after step 1"),
        "{error}"
    );
    let mut state = FitState::default();
    let bad = [Err("no batch".to_owned())];
    let error = fit(
        &mut Script::default(),
        bad,
        config(2, 1, None),
        &mut state,
        go_on,
    );
    assert!(matches!(error, Err(FitError::Batch(of)) if of.to_string() == "no batch"));
    let stopped = fit(
        &mut Script::default(),
        batches([1]),
        config(2, 1, None),
        &mut state,
        |_, _| Err("the disk is full".to_owned()),
    );
    assert!(matches!(stopped, Err(FitError::Failed(of)) if of == "the disk is full"));
}

/// A step that is left out counts, since its batch was read, and its loss does not.
#[test]
fn a_skipped_step_is_no_error() {
    let mut learner = |batch: u64| {
        Ok::<_, String>(StepReport {
            loss: if batch == 2 { f64::NAN } else { 4.0 },
            grad_norm: 1.0,
            skipped: batch == 2,
            ..StepReport::default()
        })
    };
    let mut state = FitState::default();
    let end = fit(
        &mut learner,
        batches(1..9),
        config(3, 0, None),
        &mut state,
        go_on,
    );
    assert_eq!(
        (end.unwrap(), state.step, state.loss),
        (FitEnd::Done, 3, Some(4.0))
    );
}

type Net = (Embedding<7, 8>, Linear<8, 7>);
type Model = <Net as BuildOnDevice<Cpu, f32>>::Built;

/// A bigram model with its checkpoints.
struct Bigrams {
    model: Model,
    optimizer: AdamW<f32>,
    gradients: Option<Gradients<f32, Cpu>>,
    checkpoints: Checkpoints,
    text: Vec<usize>,
}

impl Bigrams {
    fn new(folder: &Path) -> Self {
        let model = Cpu::seed_from_u64(1).build_module::<Net, f32>();
        Self {
            gradients: Some(model.alloc_grads()),
            model,
            optimizer: AdamW::new(Default::default()),
            checkpoints: Checkpoints::new(folder),
            text: (0..100).map(|i| i * i % 7).collect(),
        }
    }

    fn resume(&mut self) -> FitState {
        let latest = self.checkpoints.latest().unwrap().unwrap();
        latest
            .load_model(&mut self.model, LoadOptions::default())
            .unwrap();
        self.optimizer.state = latest
            .load_optimizer(&self.model, LoadOptions::default())
            .unwrap();
        latest.json("state.json").unwrap()
    }

    /// Up to 20 steps, or to the one after which it is stopped.
    fn run(&mut self, mut state: FitState, stop: u64) -> FitState {
        let text = self.text.clone();
        let batches = RandomBlocks::new(&text, (4, 5), 3, &Cpu::default())
            .unwrap()
            .at(state.step);
        let end = fit(
            self,
            batches,
            config(20, 8, None),
            &mut state,
            |state, _| match state.step == stop {
                true => Ok(ControlFlow::Break(())),
                false => Ok(ControlFlow::Continue(())),
            },
        );
        assert!(matches!(end, Ok(FitEnd::Done | FitEnd::Stopped)));
        state
    }

    fn bits(&self) -> Vec<u32> {
        let weight = self.model.1.weight.as_vec().into_iter();
        weight.map(f32::to_bits).collect()
    }
}

#[derive(Debug)]
struct Failed;

impl Learner<TokenBatch<Cpu>> for Bigrams {
    type Error = Failed;

    fn step(&mut self, batch: TokenBatch<Cpu>) -> Result<StepReport, Failed> {
        let gradients = self.gradients.take().ok_or(Failed)?;
        let logits = self.model.forward_mut(batch.ids.traced(gradients));
        let loss = cross_entropy(logits, &batch.targets, Default::default());
        let value = loss.array();
        let mut gradients = loss.backward();
        let grad_norm = clip_grad_norm(&self.model, &mut gradients, 1.0).map_err(|_| Failed)?;
        self.optimizer
            .update(&mut self.model, &mut gradients)
            .map_err(|_| Failed)?;
        self.model.zero_grads(&mut gradients);
        self.gradients = Some(gradients);
        Ok(StepReport {
            loss: value.into(),
            grad_norm,
            ..StepReport::default()
        })
    }

    fn evaluate(&mut self) -> Result<Option<f64>, Failed> {
        let count = self.text.len() - 1;
        let [ids, targets] = [&self.text[..count], &self.text[1..]]
            .map(|text| Cpu::default().tensor_from_vec(text.to_vec(), (1, count)));
        let loss = cross_entropy(self.model.forward(ids), &targets, Default::default());
        Ok(Some(loss.array().into()))
    }

    fn save(&mut self, state: &FitState) -> Result<(), Failed> {
        let contents = Contents::new()
            .model(&self.model)
            .optimizer(&self.optimizer.state);
        let contents = contents.json("state.json", state);
        let saved = self
            .checkpoints
            .save(state.step, &contents, state.measured());
        saved.map(drop).map_err(|_| Failed)
    }
}

#[test]
fn a_resumed_run_is_the_one_that_was_not_stopped_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = Bigrams::new(folder.path());
    let state = whole.run(FitState::default(), 99);
    assert_eq!(state.evaluations.len(), 4);
    assert!(state.evaluations[3].1 < state.evaluations[0].1);
    // 8 is a step with an evaluation, the others are not.
    for stop in [1, 8, 13, 19] {
        let folder = tempfile::tempdir().unwrap();
        Bigrams::new(folder.path()).run(FitState::default(), stop);
        let mut second = Bigrams::new(folder.path());
        let from = second.resume();
        assert_eq!(from.step, stop);
        assert_eq!(second.run(from, 99), state);
        assert_eq!(second.bits(), whole.bits());
        let best = second.checkpoints.best().unwrap().unwrap();
        assert_eq!((best.0.step(), Some(best.1)), (20, state.measured()));
    }
}
