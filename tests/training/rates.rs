//! Learning rates of steps, of groups, and of both algorithms of Muon.

use attn::train::{
    AdafactorConfig, Constant, Cosine, Linear, MuonConfig, ParameterInfo, Schedule,
    ScheduleFreeConfig, SgdConfig, Wsd,
};
use std::{collections::BTreeMap, path::Path};

use super::*;

fn rates<A: Algorithm>(algorithm: A, steps: usize) -> Vec<f64> {
    let mut trainer = scattered::<f64>().trainer(algorithm);
    let steps = take(&mut trainer, 0..steps).into_iter();
    steps.map(|step| step.learning_rate.unwrap()).collect()
}

#[test]
fn the_rate_of_a_step_is_that_of_the_step() {
    let free = ScheduleFreeConfig {
        lr: 0.5,
        warm_up: 4,
        ..ScheduleFreeConfig::default()
    };
    assert_eq!(rates(free, 5), [0.125, 0.25, 0.375, 0.5, 0.5]);
    let adafactor = AdafactorConfig {
        lr: 0.5,
        ..AdafactorConfig::default()
    };
    let falls = 1.0 / 5f64.sqrt();
    assert_eq!(rates(adafactor, 5), [0.5, 0.5, 0.5, 0.5, falls]);
}

/// A factor follows the schedule, as in PyTorch, where each group has its first rate. A rate stays.
#[test]
fn a_group_follows_a_schedule_by_a_factor() {
    let schedule = Cosine {
        highest: 0.2,
        lowest: 0.02,
        warm_up: 2,
        steps: 5,
    };
    let mut trainer = scattered::<f64>()
        .trainer(SgdConfig::default())
        .schedule(schedule)
        .group("embedding.*", |config| config.lr *= 0.1)
        .group("linear_2.*", |config| config.lr = 0.05);
    for number in 0..5 {
        let before = parameters(trainer.model());
        // A step of length 1 is the gradient.
        let unit = SgdConfig {
            lr: 1.0,
            ..SgdConfig::default()
        };
        let mut copy = scattered::<f64>();
        support::tensors::fill(&mut copy, |name, _| {
            let of = before.iter().find(|of| of.name == name);
            of.unwrap().values.clone()
        });
        let mut unit = copy.trainer(unit);
        take(&mut unit, number..number + 1);
        take(&mut trainer, number..number + 1);
        let rate = schedule.rate(number as u64 + 1);
        let all = before.iter().zip(parameters(unit.model()));
        for ((before, unit), after) in all.zip(parameters(trainer.model())) {
            let rate = match before.name.split('.').next() {
                Some("embedding") => 0.1 * rate,
                Some("linear_2") => 0.05,
                _ => rate,
            };
            let expected = before.values.iter().zip(&unit.values);
            let expected = expected.map(|(before, unit)| before - rate * (before - unit));
            let expected: Vec<_> = expected.collect();
            // A rounding or two.
            assert_close(&after.name, &after.values, &expected, 1e-14);
        }
    }
}

/// All but the table, the last layer and vectors.
fn is_hidden(parameter: &ParameterInfo<'_>) -> bool {
    parameter.decays_by_default() && parameter.name == "linear.weight"
}

#[test]
fn a_group_of_muon_changes_the_rate_of_its_parameters() {
    let muon = MuonConfig {
        hidden: is_hidden,
        ..MuonConfig::default()
    };
    let run = |pattern: &str, change: fn(&mut MuonConfig)| {
        let mut trainer = scattered::<f64>().trainer(muon).group(pattern, change);
        take(&mut trainer, 0..3);
        parameters(trainer.model())
    };
    let alone = run("*", |_| {});
    // The table takes steps of AdamW.
    assert_eq!(run("embedding.*", |config| config.lr *= 0.1), alone);
    let slow = run("embedding.*", |config| config.adamw.lr *= 0.1);
    assert_ne!(slow, alone);
    assert_eq!(run("embedding.*", |config| config.scale_lr(0.1)), slow);
    let slow = run("linear.weight", |config| config.lr *= 0.1);
    assert_ne!(slow, alone);
    assert_eq!(run("linear.weight", |config| config.scale_lr(0.1)), slow);
}

#[test]
fn muon_takes_no_epsilon_of_zero() {
    for epsilon in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let muon = MuonConfig {
            epsilon,
            ..MuonConfig::default()
        };
        let mut trainer = scattered::<f64>().trainer(muon);
        let before = parameters(trainer.model());
        let error = trainer.step(batch(0)).unwrap_err().to_string();
        let expected = format!("`epsilon` is {epsilon}, but must be finite and more than 0");
        assert_eq!(error, expected);
        assert_eq!(parameters(trainer.model()), before);
    }
}

model! {
    /// A matrix whose gradient is 0 where the input is.
    struct Still<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        linear::<d, bias = false>(x)
    }

    fn loss(x: [batch, d]) -> [] {
        mean::<[batch, d]>(forward(x))
    }
}

#[test]
fn muon_takes_no_step_by_a_gradient_of_zeros() {
    for epsilon in [1e-7, 1e-300] {
        let muon = MuonConfig {
            epsilon,
            weight_decay: 0.0,
            ..MuonConfig::default()
        };
        let mut model = Cpu::default().build_module::<Still, f32>();
        scatter(&mut model);
        let before = parameters(&model);
        let mut trainer = model.trainer(muon);
        let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().zeros();
        trainer.step(x).unwrap();
        assert_eq!(parameters(trainer.model()), before);
    }
}

/// `generate.py` made the values, from step 1 on.
#[test]
fn schedules_are_those_of_pytorch() {
    let (highest, lowest, warm_up, steps) = (0.3, 0.03, 4, 12);
    let schedules: [(&str, &dyn Schedule); 4] = [
        (
            "cosine",
            &Cosine {
                highest,
                lowest,
                warm_up,
                steps,
            },
        ),
        (
            "linear",
            &Linear {
                highest,
                lowest,
                warm_up,
                steps,
            },
        ),
        (
            "constant",
            &Constant {
                rate: highest,
                warm_up,
            },
        ),
        (
            "wsd",
            &Wsd {
                highest,
                lowest,
                warm_up,
                decay: 5,
                steps,
            },
        ),
    ];
    let values = Path::new(env!("CARGO_MANIFEST_DIR")).join("training/schedules.json");
    let values = std::fs::read_to_string(values).unwrap();
    let values: BTreeMap<String, Vec<f64>> = serde_json::from_str(&values).unwrap();
    for (name, schedule) in schedules {
        let found: Vec<_> = (1..=steps).map(|step| schedule.rate(step)).collect();
        // PyTorch computes a rate of the one before it.
        assert_close(name, &found, &values[name], 1e-14);
    }
}
