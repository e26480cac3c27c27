//! Accumulation, schedules, decay, dropout, evaluation and checkpoints.

use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    train::{
        AdamWConfig, Cosine, MuonConfig, Optimizer, Schedule, ScheduleFreeConfig, SgdConfig,
        TrainStep,
    },
};

use super::*;

type Small = Gpt<f64, Cpu>;

/// The dropout of `Gpt` has the probability 0; that of `Drops` drops.
fn trainer() -> Trainer<Small, AdamWConfig> {
    Small::scattered().trainer(AdamWConfig::default())
}

#[test]
fn a_step_on_two_batches_is_one_on_both() {
    let sgd = || SgdConfig {
        lr: 0.1,
        ..Default::default()
    };
    let mut both = Small::scattered().trainer(sgd()).clip(0.2);
    let losses = [0, 1].map(|number| both.accumulate(Small::batch(number)).unwrap());
    let done = both.apply().unwrap();
    assert_eq!(done.loss, (losses[0] + losses[1]) / 2.0);
    assert_eq!(done.step, 1);

    let mut whole = Small::scattered().trainer(sgd()).clip(0.2);
    let of_whole = whole.step(joined()).unwrap();
    assert_close("loss", &[done.loss], &[of_whole.loss], 1e-13);
    assert_close("norm", &[done.grad_norm], &[of_whole.grad_norm], 1e-13);
    assert_same(&parameters(both.model()), &parameters(whole.model()), 1e-13);
}

/// The batches 0 and 1 as one.
fn joined() -> (
    Tensor<Rank2<4, 5>, usize, Cpu>,
    Tensor<Rank2<4, 5>, usize, Cpu>,
) {
    let [(x, x_targets), (y, y_targets)] = [0, 1].map(Small::batch);
    let join = |x: &Tensor<Rank2<2, 5>, usize, Cpu>, y: &Tensor<Rank2<2, 5>, usize, Cpu>| {
        let ids = [x.as_vec(), y.as_vec()].concat();
        Cpu::default().tensor_from_vec(ids, Default::default())
    };
    (join(&x, &y), join(&x_targets, &y_targets))
}

#[test]
fn a_schedule_sets_the_rate_of_each_step() {
    let schedule = Cosine {
        highest: 0.1,
        lowest: 0.01,
        warm_up: 2,
        steps: 6,
    };
    let mut found = Small::scattered()
        .trainer(AdamWConfig::default())
        .schedule(schedule);
    let mut by_hand = trainer();
    for step in 0..6 {
        by_hand.config_mut().lr = schedule.rate(step + 1);
        let batch = Small::batch(step as usize);
        assert_eq!(
            found.step(batch.clone()).unwrap(),
            by_hand.step(batch).unwrap()
        );
        assert_eq!(found.config().lr, schedule.rate(step + 1));
    }
}

#[test]
fn decay_is_chosen() {
    let all = AdamWConfig {
        lr: 0.1,
        weight_decay: 0.5,
        ..Default::default()
    };
    let run = |decays: fn(&str) -> bool| {
        let trainer = Small::scattered().trainer(all);
        let mut trainer = trainer.decaying(move |parameter| decays(parameter.name));
        trainer.step(Small::batch(0)).unwrap();
        parameters(trainer.model())
    };
    let [none, one] = [run(|_| false), run(|name| name == "embedding.weight")];
    for (none, one) in none.iter().zip(&one) {
        assert_eq!(
            none.values != one.values,
            none.name == "embedding.weight",
            "{}",
            none.name
        );
    }
}

model! {
    struct Drops<d = 16>;

    fn forward(x: [batch, d]) -> [batch, 1] {
        let x = dropout::<0.5>(linear::<d>(x));
        linear::<1>(dropout::<0.5>(x))
    }

    fn loss(x: [batch, d], target: [batch, 1]) -> [] {
        mean::<[batch, 1]>(pow(forward(x) - target, 2))
    }
}

model_of_test!(
    Drops,
    |number| (numbers("x", number), numbers("target", number))
        as (
            Tensor<Rank2<8, 16>, f64, Cpu>,
            Tensor<Rank2<8, 1>, f64, Cpu>
        )
);

fn dropping(seed: u64) -> Trainer<Drops<f64, Cpu>, AdamWConfig> {
    let trainer = Drops::scattered().trainer(AdamWConfig::default());
    trainer.seed(seed)
}

#[test]
fn dropout_is_a_function_of_seed_and_step() {
    let [first, again, other] = [1, 1, 2].map(|seed| trained(&mut dropping(seed), 0..4));
    assert_eq!(first, again);
    assert!(
        first
            .iter()
            .zip(&other)
            .all(|(first, other)| first != other)
    );

    // The learning rate is 0: only the step differs.
    let mut still = dropping(1);
    still.config_mut().lr = 0.0;
    still.config_mut().weight_decay = 0.0;
    let batch = || Drops::batch(0);
    let losses = [(); 3].map(|()| still.step(batch()).unwrap().loss);
    assert!(
        losses[0] != losses[1] && losses[1] != losses[2],
        "{losses:?}"
    );
    // Batches of one step are not dropped alike either.
    let parts = [(); 2].map(|()| still.accumulate(batch()).unwrap());
    assert_ne!(parts[0], parts[1]);
}

#[test]
fn evaluation_is_without_dropout_and_changes_nothing() {
    let mut trainer = dropping(1);
    let loss = |trainer: &mut Trainer<_, _>| trainer.evaluate(Drops::batch(3)).unwrap();
    let before = loss(&mut trainer);
    assert_eq!(loss(&mut trainer), before);
    let (x, target) = Drops::batch(3);
    assert_eq!(trainer.model().loss((x, target)).array(), before);
    trained(&mut trainer, 0..2);
    assert_ne!(loss(&mut trainer), before);
    assert_eq!(trainer.state().step, 2);
}

/// A step on two batches, with something between them and behind: what it returns, and the parameters.
fn accumulated(between: impl Fn(&mut Trainer<Small, AdamWConfig>)) -> (TrainStep, Vec<Named>) {
    let mut trainer = trainer();
    for number in 0..2 {
        trainer.accumulate(Small::batch(number)).unwrap();
        between(&mut trainer);
    }
    let done = trainer.apply().unwrap();
    (done, parameters(trainer.model()))
}

#[test]
fn what_is_accumulated_stays_while_others_are_evaluated_or_refused() {
    let alone = accumulated(|_| {});
    let evaluated = accumulated(|trainer| {
        trainer.evaluate(Small::batch(3)).unwrap();
    });
    assert!(evaluated == alone);
    let refused = accumulated(|trainer| {
        let (tokens, _) = Small::batch(0);
        let beyond = Cpu::default().tensor([[11; 5]; 2]);
        trainer.accumulate((tokens, beyond)).unwrap_err();
    });
    assert!(refused == alone);
    // Who changes the model begins anew.
    let mut trainer = trainer();
    trainer.accumulate(Small::batch(0)).unwrap();
    trainer.model_mut();
    let message = trainer.apply().unwrap_err().to_string();
    assert!(message.starts_with("`apply` without a batch"), "{message}");
}

#[test]
fn the_rates_of_muon_stay_in_proportion() {
    let constant = Cosine {
        highest: 0.04,
        lowest: 0.04,
        warm_up: 0,
        steps: 9,
    };
    let config = |factor: f64| {
        let mut config = MuonConfig {
            lr: 0.02 * factor,
            ..Default::default()
        };
        config.adamw.lr = 0.003 * factor;
        config
    };
    let mut scheduled = Small::scattered().trainer(config(1.0)).schedule(constant);
    let mut doubled = Small::scattered().trainer(config(2.0));
    assert_eq!(trained(&mut scheduled, 0..3), trained(&mut doubled, 0..3));
    assert_eq!(parameters(scheduled.model()), parameters(doubled.model()));
}

#[test]
fn a_schedule_free_trainer_gives_out_the_mean_of_its_steps() {
    let config = || ScheduleFreeConfig {
        lr: 0.1,
        ..Default::default()
    };
    let mut trainer = Small::scattered().trainer(config());
    let (_, mut model) = by_hand(Small::scattered(), config(), None, 3);
    let mut optimizer = Optimizer::new(config());
    trained(&mut trainer, 0..3);
    // Sums of the tied table's gradient are in another order.
    assert_same(&parameters(trainer.model()), &parameters(&model), 1e-12);
    optimizer.state = trainer.state().clone();
    optimizer.eval(&mut model).unwrap();
    trainer.eval().unwrap();
    assert_same(&parameters(trainer.model()), &parameters(&model), 1e-12);
    let loss = trainer.evaluate(Small::batch(0)).unwrap();
    assert_close(
        "loss",
        &[loss],
        &[model.loss(Small::batch(0)).array()],
        1e-12,
    );
    let message = trainer.step(Small::batch(3)).unwrap_err().to_string();
    assert!(
        message.contains("call `train` before the next step"),
        "{message}"
    );
    trainer.train().unwrap();
    let mut alone = Small::scattered().trainer(config());
    trained(&mut alone, 0..3);
    let [found, expected] = [&mut trainer, &mut alone].map(|trainer| trained(trainer, 3..5));
    // The way to the mean and back rounds every parameter, by at most 1e-15 times 1 / β₁ of numbers near 1.
    assert_close("steps", &found.concat(), &expected.concat(), 1e-12);
}

#[test]
fn the_model_is_brought_up_to_date_when_it_is_asked_for() {
    let mut trainer = trainer();
    let before = parameters(trainer.model());
    trained(&mut trainer, 0..1);
    let after = parameters(trainer.model());
    assert_ne!(after, before);
    // What is changed there is trained on.
    scatter(trainer.model_mut());
    assert_eq!(parameters(trainer.model()), before);
    let mut fresh = self::trainer();
    let batch = || Small::batch(1);
    assert_eq!(
        trainer.evaluate(batch()).unwrap(),
        fresh.evaluate(batch()).unwrap()
    );
}

#[test]
fn training_goes_on_from_a_checkpoint_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut whole = dropping(5);
    let expected = trained(&mut whole, 0..6);

    let mut first = dropping(5);
    let mut found = trained(&mut first, 0..3);
    checkpoints.save(3, &first.contents(), None).unwrap();
    drop(first);
    let mut second = Drops::unset().trainer(AdamWConfig::default()).seed(5);
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    second.load(&checkpoint, LoadOptions::default()).unwrap();
    found.extend(trained(&mut second, 3..6));
    assert_eq!(found, expected);
    assert_eq!(parameters(second.model()), parameters(whole.model()));
    assert_eq!(second.state(), whole.state());
}

#[test]
fn a_checkpoint_of_a_trainer_is_one_of_the_model_and_an_optimizer() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut trainer = Small::scattered().trainer(MuonConfig::default());
    trained(&mut trainer, 0..2);
    let saved = checkpoints.save(2, &trainer.contents(), None).unwrap();
    let (model, optimizer) = trainer.into_parts();
    let mut loaded = Small::unset();
    saved
        .load_model(&mut loaded, LoadOptions::default())
        .unwrap();
    assert_eq!(parameters(&loaded), parameters(&model));
    let state = saved
        .load_optimizer(&loaded, LoadOptions::default())
        .unwrap();
    assert!(optimizer.state == state);
}
