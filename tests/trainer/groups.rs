//! Groups of parameters with settings of their own.

use attn::train::{AdamWConfig, Optimizer, TrainError, UpdateError};

use super::*;

type Small = Gpt<f64, Cpu>;

fn config(lr: f64) -> AdamWConfig {
    AdamWConfig {
        lr,
        ..Default::default()
    }
}

/// Asserts that the parameters of the first block, and no others, have their values of before.
fn assert_first_block_left_alone(before: &[Named], after: &[Named]) {
    for (before, after) in before.iter().zip(after) {
        let is_left_alone = before.name.starts_with("blocks.0.");
        assert_eq!(
            before.values == after.values,
            is_left_alone,
            "{}",
            before.name
        );
    }
}

/// In the first step of AdamW, a parameter depends on its own gradient and settings alone, and that gradient on no settings.
#[test]
fn each_group_takes_the_step_of_its_own_settings() {
    let step = |mut trainer: Trainer<Small, AdamWConfig>| {
        trained(&mut trainer, 0..1);
        parameters(trainer.model())
    };
    let [slow, fast] = [0.001, 0.25].map(|lr| step(Small::scattered().trainer(config(lr))));
    let grouped = step(
        Small::scattered()
            .trainer(config(0.001))
            .group("blocks.*.attention.*", |config| config.lr = 0.25)
            .group("*.bias", |config| config.lr *= 250.0),
    );
    let mut counts = [0; 2];
    for ((slow, fast), grouped) in slow.iter().zip(&fast).zip(&grouped) {
        let is_of_attention = slow.name.contains(".attention.");
        let is_bias = slow.name.ends_with(".bias");
        // Both groups have the biases of attention, and the second one multiplies what the first one has set.
        if is_of_attention && is_bias {
            continue;
        }
        let is_fast = is_of_attention || is_bias;
        let expected = if is_fast { fast } else { slow };
        assert_eq!(grouped.values, expected.values, "{}", slow.name);
        assert_ne!(slow.values, fast.values, "{}", slow.name);
        counts[usize::from(is_fast)] += 1;
    }
    assert!(counts.iter().all(|count| *count > 4), "{counts:?}");
}

#[test]
fn a_rate_of_zero_leaves_parameters_alone_and_a_trainer_has_the_groups_of_an_optimizer() {
    let mut trainer = Small::scattered()
        .trainer(config(0.1))
        .group("blocks.0.*", |config| config.lr = 0.0);
    let before = parameters(trainer.model());
    trained(&mut trainer, 0..3);
    let mut model = Small::scattered();
    let mut optimizer =
        Optimizer::new(config(0.1)).group("blocks.0.*", |config: &mut AdamWConfig| config.lr = 0.0);
    let mut gradients = model.alloc_grads();
    for number in 0..3 {
        gradients = model
            .traced(Small::batch(number), gradients)
            .unwrap()
            .backward();
        optimizer.update(&mut model, &mut gradients).unwrap();
        model.zero_grads(&mut gradients);
    }
    // Sums of the tied table's gradient are in another order.
    assert_same(&parameters(trainer.model()), &parameters(&model), 1e-12);
    assert_first_block_left_alone(&before, &parameters(trainer.model()));
}

#[test]
fn groups_and_rules_of_decay_between_steps_hold_from_the_next_one_on() {
    let begun = || {
        let mut trainer = Small::scattered().trainer(AdamWConfig {
            weight_decay: 0.5,
            ..config(0.1)
        });
        trained(&mut trainer, 0..2);
        trainer
    };
    let mut grouped = begun().group("blocks.0.*", |config| config.lr = 0.0);
    let before = parameters(grouped.model());
    trained(&mut grouped, 2..3);
    assert_first_block_left_alone(&before, &parameters(grouped.model()));

    let [mut undecayed, mut by_settings, mut decayed] =
        [begun().decaying(|_| false), begun(), begun()];
    by_settings.config_mut().weight_decay = 0.0;
    for trainer in [&mut undecayed, &mut by_settings, &mut decayed] {
        trained(trainer, 2..3);
    }
    let expected = parameters(by_settings.model());
    assert_eq!(parameters(undecayed.model()), expected);
    assert_ne!(parameters(decayed.model()), expected);
}

#[test]
fn mistakes_are_found_before_anything_changes() {
    let mut nobody = Small::scattered()
        .trainer(config(0.1))
        .group("block.*", |config| config.lr = 0.0);
    let before = parameters(nobody.model());
    let error = nobody.step(Small::batch(0)).unwrap_err();
    let names: Vec<_> = nobody
        .parameters()
        .into_iter()
        .map(|parameter| parameter.name)
        .collect();
    assert_eq!(names.len(), before.len());
    let TrainError::Update(UpdateError::NoParameter {
        pattern,
        names: found,
    }) = &error
    else {
        panic!("{error}");
    };
    assert_eq!((pattern.as_str(), found), ("block.*", &names));
    let message = error.to_string();
    let start =
        "no parameter has a name like `block.*`: the names are `embedding.weight`, `blocks.0.";
    assert!(message.starts_with(start), "{message}");
    assert!(
        message.ends_with(&format!(", and {} more", names.len() - 8)),
        "{message}"
    );

    let mut negative = Small::scattered()
        .trainer(config(0.1))
        .group("*norm*", |config| config.lr = -1.0);
    let error = negative.step(Small::batch(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`lr` is -1, but must be finite and not negative"
    );
    assert_eq!(parameters(negative.model()), before);
    assert_eq!(negative.state().step, 0);
}
