//! Numbers that are not finite, parameters without a gradient, equal tensors, and mistakes.

use attn::train::{AdamWConfig, MuonConfig, Noam, NonFinite, SgdConfig, TrainError, UpdateError};

use super::*;

model! {
    struct Fragile<d = 2>;

    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(linear::<d>(x))
    }

    /// Reads one of the two layers, and one that `forward` has not.
    fn loss(x: [batch, d], factor: [batch, 1]) -> [] {
        mean::<[batch, 1]>(factor * linear::<1, name = head>(x))
    }
}

type Batch = (Tensor<Rank2<3, 2>, f64, Cpu>, Tensor<Rank2<3, 1>, f64, Cpu>);

model_of_test!(
    Fragile,
    |number| (numbers("x", number), numbers("factor", number)) as Batch
);

fn batch_with(factor: f64) -> Batch {
    let (x, _) = Fragile::batch(0);
    (x, Cpu::default().tensor([[1.0], [factor], [1.0]]))
}

fn trainer() -> Trainer<Fragile<f64, Cpu>, AdamWConfig> {
    Fragile::scattered().trainer(AdamWConfig {
        weight_decay: 0.5,
        ..Default::default()
    })
}

#[test]
fn a_parameter_that_the_loss_does_not_read_is_left_alone() {
    let mut trainer = trainer();
    let before = parameters(trainer.model());
    trained(&mut trainer, 0..3);
    let after = parameters(trainer.model());
    for (before, after) in before.iter().zip(&after) {
        let is_read = before.name.starts_with("head");
        assert_eq!(before.values != after.values, is_read, "{}", before.name);
    }
    // The state has its lists, as that of an optimizer has.
    let lists = &trainer.state().lists;
    assert_eq!(lists.len(), 2 * before.len());
}

#[test]
fn a_step_that_is_not_finite_is_an_error_and_changes_nothing() {
    for factor in [f64::NAN, f64::INFINITY] {
        let mut trainer = trainer();
        trained(&mut trainer, 0..2);
        let before = parameters(trainer.model());
        let state = trainer.state().clone();
        let error = trainer.step(batch_with(factor)).unwrap_err();
        let TrainError::NotFinite {
            step, parameter, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*step, parameter.as_deref()), (3, Some("head.weight")));
        let message = error.to_string();
        assert!(message.starts_with("step 3: the loss is "), "{message}");
        assert!(
            message.contains(", where that of `head.weight` is the first that is not finite; "),
            "{message}"
        );
        assert_eq!(parameters(trainer.model()), before);
        assert!(*trainer.state() == state);
        // The next one is as if there had been none.
        let mut other = self::trainer();
        trained(&mut other, 0..2);
        assert_eq!(trained(&mut trainer, 2..4), trained(&mut other, 2..4));
    }
}

#[test]
fn steps_that_are_not_finite_are_skipped_on_request() {
    let mut trainer = trainer().non_finite(NonFinite::Skip);
    let before = parameters(trainer.model());
    let done = trainer.step(batch_with(f64::NAN)).unwrap();
    assert!(done.skipped && done.loss.is_nan());
    assert_eq!((done.step, trainer.state().step), (1, 0));
    assert_eq!(parameters(trainer.model()), before);
    let done = trainer.step(batch_with(1.0)).unwrap();
    assert!(!done.skipped && done.step == 1);
}

#[test]
fn settings_and_calls_that_are_not_allowed() {
    let mut trainer = trainer();
    let none = trainer.apply().unwrap_err().to_string();
    assert_eq!(none, "`apply` without a batch: call `accumulate` before it");

    trainer.config_mut().lr = -1.0;
    let before = parameters(trainer.model());
    let refused = trainer.step(batch_with(1.0)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`lr` is -1, but must be finite and not negative"
    );
    assert_eq!(parameters(trainer.model()), before);

    let mut clipped = self::trainer().clip(f64::NAN);
    let refused = clipped.step(batch_with(1.0)).unwrap_err();
    assert_eq!(refused.to_string(), "`clip` is NaN, but must be 0 or more");
    assert!(matches!(
        refused,
        TrainError::Update(UpdateError::Config { name: "clip", .. })
    ));
}

#[test]
fn a_schedule_without_a_width_changes_nothing() {
    let mut trainer = trainer().schedule(Noam {
        d_model: 0,
        warm_up: 4,
        factor: 1.0,
    });
    let before = parameters(trainer.model());
    let refused = trainer.step(batch_with(1.0)).unwrap_err();
    assert_eq!(refused.to_string(), "`d_model` is 0, but must be 1 or more");
    assert_eq!(parameters(trainer.model()), before);
    assert_eq!(trainer.state().step, 0);
}

#[test]
fn a_batch_that_the_model_refuses_changes_nothing() {
    let mut trainer = Gpt::scattered().trainer(AdamWConfig::default());
    let outside: Tensor<Rank2<2, 5>, usize, Cpu> = Cpu::default().tensor([[11; 5]; 2]);
    let refused = trainer.step((outside, tokens(0, 11))).unwrap_err();
    assert!(matches!(refused, TrainError::Call(_)), "{refused}");
    let mut other = Gpt::scattered().trainer(AdamWConfig::default());
    assert_eq!(trained(&mut trainer, 0..2), trained(&mut other, 0..2));
}

model! {
    /// Two layers, which a test makes one.
    struct Twice<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        linear::<d, name = second>(tanh(linear::<d, name = first>(x)))
    }

    fn loss(x: [batch, d], target: [batch, d]) -> [] {
        mean::<[batch, d]>(pow(forward(x) - target, 2))
    }
}

model_of_test!(
    Twice,
    |number| (numbers("x", number), numbers("target", number))
        as (Tensor<Rank2<4, 3>, f64, Cpu>, Tensor<Rank2<4, 3>, f64, Cpu>)
);

/// With one weight in both layers.
fn shared() -> Twice<f64, Cpu> {
    let mut model = Twice::scattered();
    model.second.weight = model.first.weight.clone();
    model
}

#[test]
fn clones_of_a_transposed_tensor_are_trained_as_one() {
    let mut model = shared();
    let transposed: Tensor<Rank2<3, 3>, f64, Cpu> = model.first.weight.clone().permute();
    model.first.weight = transposed.clone();
    model.second.weight = transposed;
    let mut trainer = model.trainer(AdamWConfig::default());
    trained(&mut trainer, 0..3);
    let model = trainer.into_model();
    assert_eq!(model.first.weight.array(), model.second.weight.array());
}

#[test]
fn clones_are_in_the_same_groups() {
    let mut trainer = shared()
        .trainer(AdamWConfig::default())
        .group("first.*", |config| config.lr = 0.0);
    let before = trainer.model().first.weight.array();
    trained(&mut trainer, 0..2);
    let model = trainer.into_model();
    assert_eq!(model.first.weight.array(), before);
    assert_eq!(model.second.weight.array(), before);
}

#[test]
fn clones_are_trained_as_one() {
    let sgd = SgdConfig {
        lr: 0.1,
        momentum: 0.5,
        ..Default::default()
    };
    let (expected, by_hand) = by_hand(shared(), sgd, Some(0.3), 8);
    let mut trainer = shared().trainer(sgd).clip(0.3);
    let found = trained(&mut trainer, 0..8);
    assert_close(
        "losses and norms",
        &found.concat(),
        &expected.concat(),
        1e-13,
    );
    assert_same(&parameters(trainer.model()), &parameters(&by_hand), 1e-13);
    let model = trainer.into_model();
    assert_eq!(model.first.weight.array(), model.second.weight.array());
}

#[test]
fn clones_are_hidden_matrices_by_all_names_or_none() {
    for hidden in ["first", "second"] {
        let config = || MuonConfig {
            lr: 0.02,
            hidden: match hidden {
                "first" => |parameter| parameter.name.starts_with("first"),
                _ => |parameter| parameter.name.starts_with("second"),
            },
            ..MuonConfig::default()
        };
        let (_, by_hand) = by_hand(shared(), config(), None, 3);
        assert_eq!(by_hand.first.weight.array(), by_hand.second.weight.array());
        let mut trainer = shared().trainer(config());
        trained(&mut trainer, 0..3);
        let names = trainer.state().lists.keys();
        assert_eq!(names.filter(|name| name.ends_with("momentum")).count(), 0);
        let model = trainer.into_model();
        assert_eq!(model.first.weight.array(), model.second.weight.array());
    }
}

model! {
    /// Names, an input with a default, and a single input.
    struct Named1<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        linear::<d>(x)
    }

    fn loss(x: [batch, d], scale: [batch, d] = 1) -> [] {
        mean::<[batch, d]>(forward(x) * scale)
    }
}

#[test]
fn a_batch_is_what_the_loss_takes() {
    let build = || {
        let mut model = Cpu::default().build_module::<Named1, f64>();
        scatter(&mut model);
        model
    };
    let x: Tensor<Rank2<4, 3>, f64, Cpu> = numbers("x", 0);
    let mut trainer = build().trainer(SgdConfig::default());
    let absent = trainer.evaluate((x.clone(), None)).unwrap();
    let by_name = Named1LossInputs {
        x: x.clone(),
        scale: Some(Cpu::default().ones()),
    };
    assert_eq!(trainer.evaluate(by_name.clone()).unwrap(), absent);
    assert_eq!(build().loss((x, None)).array(), absent);
    assert_eq!(trainer.step(by_name).unwrap().loss, absent);
}
