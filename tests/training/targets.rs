//! Batches count by their targets, without those that are ignored.

use attn::train::{AdamWConfig, FitConfig, FitEnd, FitState, NonFinite, SgdConfig, TrainError};

use super::*;

fn trainer() -> NetTrainer<SgdConfig> {
    let sgd = SgdConfig {
        lr: 0.1,
        ..SgdConfig::default()
    };
    scattered().trainer(sgd)
}

/// Two batches as one.
fn joined([first, second]: [(Ids, Ids); 2]) -> (Ids, Ids) {
    let join = |first: Ids, second: Ids| {
        let rows = first.shape().0 + second.shape().0;
        let numbers = [first.as_vec(), second.as_vec()].concat();
        Cpu::default().tensor_from_vec(numbers, (rows, 4))
    };
    (join(first.0, second.0), join(first.1, second.1))
}

/// Sums in another order.
const SUMS: f64 = 1e-13;

/// 3 and 8 targets, then none.
fn uneven() -> [(Ids, Ids); 2] {
    [batch_with(0, 2, 3), batch_with(1, 2, 8)]
}

fn ignored() -> (Ids, Ids) {
    batch_with(2, 2, 0)
}

fn empty() -> (Ids, Ids) {
    batch_with(3, 0, 0)
}

#[test]
fn an_evaluation_is_the_mean_of_the_targets_that_count() {
    let mut trainer = trainer();
    let [first, second] = uneven().map(|batch| trainer.evaluate(batch).unwrap());
    let expected = (3.0 * first + 8.0 * second) / 11.0;
    assert!((first - second).abs() > 0.01, "they differ");
    let whole = trainer.evaluate(joined(uneven())).unwrap();
    assert_close("whole", &[whole], &[expected], SUMS);
    let [first, second] = uneven();
    let batches = || [ignored(), first.clone(), empty(), second.clone()];
    let all = trainer.evaluate_all(batches()).unwrap();
    assert_close("all", &[all], &[expected], SUMS);
    let by_name = batches().map(|(ids, targets)| NetLossInputs { ids, targets });
    assert_eq!(trainer.evaluate_all(by_name).unwrap(), all);
    let results = batches().map(Ok::<_, String>);
    assert_eq!(trainer.try_evaluate_all(results).unwrap(), all);

    let nothing = trainer.evaluate_all([ignored(), empty()]);
    assert!(matches!(nothing, Err(TrainError::NoTargets)), "{nothing:?}");
    let failed = [Ok(first), Err("no file".to_owned())];
    let error = trainer.try_evaluate_all(failed).unwrap_err();
    assert_eq!(error.to_string(), "no file");
}

#[test]
fn accumulated_batches_are_one_batch_whatever_their_padding() {
    let mut parts = trainer();
    for batch in uneven() {
        parts.accumulate(batch).unwrap();
    }
    let done = parts.apply().unwrap();
    let mut whole = trainer();
    let expected = whole.step(joined(uneven())).unwrap();
    assert_close("loss", &[done.loss], &[expected.loss], SUMS);
    assert_close("norm", &[done.grad_norm], &[expected.grad_norm], SUMS);
    assert_same(&parameters(parts.model()), &parameters(whole.model()), SUMS);
}

#[test]
fn a_batch_without_targets_is_an_error_of_its_own() {
    for nothing in [ignored, empty] {
        let mut trainer = trainer();
        let before = parameters(trainer.model());
        let error = trainer.step(nothing()).unwrap_err();
        assert!(matches!(error, TrainError::EmptyBatch { step: 1 }));
        let message = error.to_string();
        assert!(
            message.starts_with("step 1: the batch has no targets"),
            "{message}"
        );
        assert!(!message.contains("learning rate"), "{message}");
        assert_eq!(parameters(trainer.model()), before);

        // What was accumulated before stays.
        trainer.accumulate(batch(0)).unwrap();
        trainer.accumulate(nothing()).unwrap_err();
        let done = trainer.apply().unwrap();
        let mut alone = self::trainer();
        assert_eq!(done, alone.step(batch(0)).unwrap());
        assert_eq!(parameters(trainer.model()), parameters(alone.model()));
    }
}

model! {
    /// The targets are not the last input, and there are two losses.
    struct Marked<d = 3>;

    fn forward(x: [batch, d]) -> [batch, 2] {
        linear::<2>(x)
    }

    fn loss(x: [batch, d], targets: ids[batch], marks: [batch, 5]) -> [] {
        let y = forward(x);
        cross_entropy::<ignore_index = 2>(y, targets) + 0.0 * mean::<[batch, 5]>(marks)
    }
}

#[test]
fn targets_are_found_by_the_loss() {
    let device = Cpu::default();
    let mut model = device.build_module::<Marked, f64>();
    scatter(&mut model);
    let mut trainer = model.trainer(AdamWConfig::default());
    let batch = |targets: [usize; 3]| {
        let x = support::cases::tensor(&format!("{targets:?}"), Rank2::<3, 3>::default());
        let marks: Tensor<Rank2<3, 5>, f64, _> = device.ones();
        (x, device.tensor(targets), marks)
    };
    let [first, second] = [[0, 1, 0], [2, 2, 1]].map(batch);
    let [of_first, of_second] = [&first, &second].map(|batch| trainer.evaluate(batch.clone()));
    let expected = (3.0 * of_first.unwrap() + of_second.unwrap()) / 4.0;
    let all = trainer.evaluate_all([first, second]).unwrap();
    assert_close("all", &[all], &[expected], SUMS);
}

model! {
    /// The loss stands in a loop: one of each round.
    struct Deep<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        x
    }

    fn loss(targets: ids[batch], x: [batch, d], marks: [batch, 5]) -> [] {
        let mut x = forward(x);
        let mut all = 0.1 * mean::<[batch, 5]>(marks);
        repeat 2 {
            x += tanh(linear::<d>(x));
            all = all + cross_entropy::<ignore_index = 2>(linear::<3>(x), targets);
        }
        all
    }
}

#[test]
fn targets_are_found_by_a_loss_in_a_loop() {
    let device = Cpu::default();
    let mut model = device.build_module::<Deep, f64>();
    scatter(&mut model);
    let mut trainer = model.trainer(AdamWConfig::default());
    let batch = |targets: [usize; 3]| {
        let x: Tensor<Rank2<3, 3>, f64, _> =
            support::cases::tensor(&format!("{targets:?}"), Default::default());
        let marks: Tensor<Rank2<3, 5>, f64, _> = device.ones();
        (device.tensor(targets), x, marks)
    };
    let [first, second] = [[0, 1, 0], [2, 2, 1]].map(batch);
    let [of_first, of_second] = [&first, &second].map(|batch| trainer.evaluate(batch.clone()));
    let expected = (3.0 * of_first.unwrap() + of_second.unwrap()) / 4.0;
    let all = trainer.evaluate_all([first, second]).unwrap();
    assert_close("all", &[all], &[expected], SUMS);
    let error = trainer.step(batch([2, 2, 2])).unwrap_err();
    assert!(matches!(error, TrainError::EmptyBatch { step: 1 }));
}

#[test]
fn skipped_steps_are_counted_until_one_is_taken() {
    let run = |numbers: &[bool], limit: u64| {
        let batches = numbers.iter().map(|counts| match counts {
            true => Ok::<_, CpuError>(batch(0)),
            false => Ok(ignored()),
        });
        let mut trainer = trainer().non_finite(NonFinite::Skip);
        let mut state = FitState::default();
        let config = FitConfig {
            steps: numbers.len() as u64,
            ..FitConfig::default()
        };
        let fit = trainer.fit(config);
        let fit = fit.stop_when(|state| state.skipped == limit);
        let end = fit.run(batches, &mut state).unwrap();
        (end, state.step, state.skipped)
    };
    assert_eq!(run(&[true, false, false], 9), (FitEnd::Done, 3, 2));
    assert_eq!(run(&[false, false, true], 9), (FitEnd::Done, 3, 0));
    assert_eq!(run(&[false; 5], 3), (FitEnd::Stopped, 3, 3));
    // A state that was saved before there was a count.
    let old = r#"{"step":1,"loss":null,"evaluations":[]}"#;
    let state: FitState = serde_json::from_str(old).unwrap();
    assert_eq!((state.step, state.skipped), (1, 0));
}
