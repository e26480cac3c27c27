//! The mean of a schedule-free trainer and the parameters of its training take each other's place without a rounding.

use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    train::{FitConfig, FitEnd, FitState, ScheduleFreeConfig, TrainError},
};
use std::{error::Error, path::Path};

use super::*;

fn trainer() -> NetTrainer<ScheduleFreeConfig, f32> {
    let config = ScheduleFreeConfig {
        lr: 0.05,
        warm_up: 2,
        ..ScheduleFreeConfig::default()
    };
    scattered().trainer(config)
}

#[test]
fn training_goes_on_with_the_bits_of_before() {
    let mut found = trainer();
    take(&mut found, 0..3);
    let before = parameters(found.model());
    let state = found.state().clone();
    found.eval().unwrap();
    assert_ne!(parameters(found.model()), before);
    found.train().unwrap();
    assert_eq!(parameters(found.model()), before);
    assert_eq!(found.state().lists, state.lists);
}

#[test]
fn what_is_changed_in_between_is_the_mean() {
    let mut found = trainer();
    take(&mut found, 0..3);
    let before = parameters(found.model());
    found.eval().unwrap();
    scatter(found.model_mut());
    let mean = parameters(found.model());
    found.train().unwrap();
    let after = parameters(found.model());
    assert_ne!(after, before);
    let beta = found.config().betas[0];
    for (mean, after) in mean.iter().zip(after) {
        let steps = &found.state().lists[&format!("{}.steps", mean.name)];
        let expected = mean.values.iter().zip(steps);
        let expected = expected.map(|(x, z)| beta * x + (1.0 - beta) * f64::from(*z));
        let expected: Vec<_> = expected.collect();
        // A rounding or two of `f32`.
        assert_close(&after.name, &after.values, &expected, 1e-6);
    }
}

#[test]
fn a_setting_that_is_not_allowed_changes_nothing() {
    let mut found = trainer();
    take(&mut found, 0..2);
    let before = parameters(found.model());
    found.config_mut().betas[0] = 0.0;
    let error = found.eval().unwrap_err().to_string();
    assert_eq!(
        error,
        "`betas[0]` is 0, but must be greater than 0 and less than 1"
    );
    assert_eq!(parameters(found.model()), before);

    let mut grouped = trainer().group("embedding.*", |config| config.betas[0] *= 0.5);
    take(&mut grouped, 0..2);
    grouped.eval().unwrap();
    let before = parameters(grouped.model());
    grouped.config_mut().betas[0] = 0.0;
    grouped.train().unwrap_err();
    assert_eq!(parameters(grouped.model()), before);
}

/// Steps up to the eighth, or to the one after which it is stopped. Evaluations and checkpoints have the mean.
fn run(folder: &Path, stop: u64) -> (FitEnd, FitState, Vec<Named>) {
    type Failure = Box<dyn Error + Send + Sync>;
    let mut trainer = trainer();
    let checkpoints = Checkpoints::new(folder);
    let mut state = FitState::default();
    if let Some(latest) = checkpoints.latest().unwrap() {
        trainer.load(&latest, LoadOptions::default()).unwrap();
        trainer.train().unwrap();
        state = latest.json("fit.json").unwrap();
    }
    let batches = state.step as usize..;
    let config = FitConfig {
        steps: 8,
        evaluate_every: 3,
        ..FitConfig::default()
    };
    let end = trainer
        .fit(config)
        .evaluate(|trainer| {
            trainer.eval()?;
            let loss = trainer.evaluate(batch(99))?;
            trainer.train()?;
            Ok::<_, TrainError<CpuError>>(loss)
        })
        .save(|trainer, state| {
            trainer.eval()?;
            let contents = trainer.contents().json("fit.json", state);
            checkpoints.save(state.step, &contents, state.measured())?;
            drop(contents);
            trainer.train()?;
            Ok::<_, Failure>(())
        })
        .stop_when(|state| state.step == stop)
        .run(
            batches.map(|number| Ok::<_, CpuError>(batch(number))),
            &mut state,
        )
        .unwrap();
    (end, state, parameters(trainer.model()))
}

#[test]
fn a_stopped_run_goes_on_to_the_same_bits() {
    let whole = tempfile::tempdir().unwrap();
    let (end, state, expected) = run(whole.path(), 99);
    assert_eq!(end, FitEnd::Done);
    for stop in [2, 3, 7] {
        let parts = tempfile::tempdir().unwrap();
        assert_eq!(run(parts.path(), stop).0, FitEnd::Stopped);
        let (_, state_now, found) = run(parts.path(), 99);
        assert_eq!(state_now, state, "{stop}");
        assert!(found == expected, "{stop}");
    }
}
