//! The moving average of a trainer is that of `Ema`, and is there for evaluations and checkpoints alone.

use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    train::{AdamWConfig, Ema, FitConfig, FitState, TrainError},
};

use super::*;

fn trainer() -> NetTrainer<AdamWConfig> {
    let config = AdamWConfig {
        lr: 0.05,
        ..AdamWConfig::default()
    };
    scattered().trainer(config)
}

#[test]
fn it_is_the_average_of_the_parameters_after_each_step() {
    let mut by_hand = trainer();
    let mut ema = Ema::new(0.7);
    let mut found = trainer().ema(0.7);
    for number in 0..4 {
        by_hand.step(batch(number)).unwrap();
        ema.update(by_hand.model()).unwrap();
        // Looking at the averages changes no step.
        let _ = found.averaged().unwrap().evaluate(batch(9)).unwrap();
        found.step(batch(number)).unwrap();
    }
    let mut expected = scattered::<f64>();
    ema.copy_to(&mut expected).unwrap();
    let loss = expected.loss(batch(9)).array();
    {
        let mut averaged = found.averaged().unwrap();
        assert_eq!(averaged.evaluate(batch(9)).unwrap(), loss);
        assert_eq!(averaged.evaluate_all([batch(9)]).unwrap(), loss);
        let results = [Ok::<_, CpuError>(batch(9))];
        assert_eq!(averaged.try_evaluate_all(results).unwrap(), loss);
        assert_eq!(parameters(averaged.model()), parameters(&expected));
    }
    assert_ne!(found.evaluate(batch(9)).unwrap(), loss);
    assert_eq!(parameters(found.model()), parameters(by_hand.model()));
}

#[test]
fn a_run_evaluates_them() {
    let mut trainer = trainer().ema(0.5);
    let mut state = FitState::default();
    let batches = (0..3).map(|number| Ok::<_, CpuError>(batch(number)));
    let config = FitConfig {
        steps: 3,
        ..FitConfig::default()
    };
    let fit = trainer.fit(config);
    let fit = fit.evaluate(|trainer| trainer.averaged()?.evaluate(batch(9)));
    fit.run(batches, &mut state).unwrap();
    let last = trainer.averaged().unwrap().evaluate(batch(9)).unwrap();
    assert_eq!(state.measured(), Some(last));
    // Before the first step they are the parameters.
    let first = self::trainer().evaluate(batch(9)).unwrap();
    assert_eq!(state.evaluations[0], (0, first));
}

#[test]
fn a_checkpoint_may_be_loaded_before_it_is_said_that_they_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = trainer().ema(0.5);
    take(&mut whole, 0..2);
    let checkpoints = Checkpoints::new(folder.path());
    let checkpoint = checkpoints.save(2, &whole.contents(), None).unwrap();
    let mut loaded = trainer();
    loaded.load(&checkpoint, LoadOptions::default()).unwrap();
    let mut loaded = loaded.ema(0.5);
    for trainer in [&mut whole, &mut loaded] {
        take(trainer, 2..4);
    }
    assert!(loaded.state() == whole.state());
    let averages = [whole, loaded].map(|mut of| parameters(of.averaged().unwrap().model()));
    assert_eq!(averages[0], averages[1]);
}

#[test]
fn who_keeps_none_is_told_and_drops_those_of_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut kept = trainer().ema(0.5);
    take(&mut kept, 0..2);
    let checkpoint = checkpoints.save(2, &kept.contents(), None).unwrap();
    let has_averages = |trainer: &NetTrainer<AdamWConfig>| {
        let mut names = trainer.state().lists.keys();
        names.any(|name| name.ends_with(".ema"))
    };
    assert!(has_averages(&kept));

    let mut without = trainer();
    without.load(&checkpoint, LoadOptions::default()).unwrap();
    let error = without.averaged().unwrap_err();
    assert!(matches!(error, TrainError::NoAverage), "{error}");
    take(&mut without, 2..3);
    assert!(!has_averages(&without));
    // They begin with the next step, if a checkpoint has none.
    let checkpoint = checkpoints.save(3, &without.contents(), None).unwrap();
    let mut anew = trainer().ema(0.5);
    anew.load(&checkpoint, LoadOptions::default()).unwrap();
    take(&mut anew, 3..4);
    let averages = parameters(anew.averaged().unwrap().model());
    assert_eq!(averages, parameters(anew.model()));

    let mut wrong = trainer().ema(1.5);
    let before = parameters(wrong.model());
    let error = wrong.step(batch(0)).unwrap_err().to_string();
    assert_eq!(error, "`ema` is 1.5, but must be in 0..=1");
    assert_eq!(parameters(wrong.model()), before);
}
