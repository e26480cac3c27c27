//! Optimizers take the steps of PyTorch and of their authors' packages. `generate.py` made the values.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{
    Backend, Element,
    dfdx::prelude::*,
    train::{
        AdafactorConfig, AdamWConfig, Algorithm, Ema, LionConfig, MuonConfig, MuonScale, Optimizer,
        ParameterInfo, ScheduleFree, ScheduleFreeConfig, SgdConfig, UpdateError,
    },
};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, path::Path};

/// Numbers by the name of a parameter.
type Named = BTreeMap<String, Vec<f64>>;

#[derive(Deserialize)]
struct Values {
    starts: Named,
    gradients: Vec<Named>,
    cases: BTreeMap<String, Vec<Named>>,
    lengths: BTreeMap<String, [f64; 2]>,
}

fn values() -> Values {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("optimizers/values.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A matrix, a vector and a stack of matrices.
type Model<E> = (
    Tensor<Rank2<4, 3>, E, Cpu>,
    Tensor<Rank1<5>, E, Cpu>,
    Tensor<Rank3<2, 3, 4>, E, Cpu>,
);

const NAMES: [&str; 3] = ["matrix", "vector", "stack"];

fn model<E: Element>(numbers: &Named) -> Model<E>
where
    Cpu: Backend<E>,
{
    let dev = Cpu::default();
    let of = |name: &str| numbers[name].iter().map(|&x| E::of(x)).collect::<Vec<E>>();
    let [matrix, vector, stack] = NAMES.map(of);
    (
        dev.tensor_from_vec(matrix, Default::default()),
        dev.tensor_from_vec(vector, Default::default()),
        dev.tensor_from_vec(stack, Default::default()),
    )
}

fn numbers<E: Element>(model: &Model<E>) -> [Vec<f64>; 3]
where
    Cpu: Backend<E>,
{
    let (matrix, vector, stack) = model;
    [matrix.as_vec(), vector.as_vec(), stack.as_vec()]
        .map(|numbers| numbers.into_iter().map(Into::into).collect())
}

/// Those of the sum of the parameters times the given numbers.
fn gradients<E: Element>(model: &Model<E>, of: &Named) -> Gradients<E, Cpu>
where
    Cpu: Backend<E>,
{
    let (matrix, vector, stack) = self::model::<E>(of);
    let matrix = (model.0.leaky_trace() * matrix).sum();
    let vector = (model.1.leaky_trace() * vector).sum();
    let stack = (model.2.leaky_trace() * stack).sum();
    (matrix + vector + stack).backward()
}

#[track_caller]
fn assert_close(what: &str, found: [Vec<f64>; 3], expected: &Named, tolerance: f64) {
    for (name, found) in NAMES.into_iter().zip(found) {
        assert_eq!(found.len(), expected[name].len());
        for (found, expected) in found.iter().zip(&expected[name]) {
            assert!(
                (found - expected).abs() <= tolerance,
                "{what}, {name}: {found} is not {expected}"
            );
        }
    }
}

/// Takes all steps, with settings for each of them.
fn run<E: Element, A: Algorithm>(
    name: &str,
    config: impl Fn(u64) -> A,
    tolerance: f64,
) -> (Model<E>, Optimizer<E, A>, Values)
where
    Cpu: Backend<E>,
{
    let values = values();
    let mut model = model::<E>(&values.starts);
    let mut optimizer = Optimizer::new(config(1)).decaying(|_| true);
    for (step, of_step) in (1..).zip(&values.gradients) {
        optimizer.config = config(step);
        let mut gradients = gradients(&model, of_step);
        optimizer.update(&mut model, &mut gradients).unwrap();
        let what = format!("{name}, step {step}");
        let expected = &values.cases[name][step as usize - 1];
        assert_close(&what, numbers(&model), expected, tolerance);
    }
    (model, optimizer, values)
}

/// The steps of PyTorch where `grad` is `None` of the matrix in the first three, and of the vector in the third to the fifth.
fn assert_steps_with_freezing<A: Algorithm>(name: &str, config: A) {
    let values = values();
    let mut model = model::<f64>(&values.starts);
    let mut optimizer = Optimizer::new(config).decaying(|_| true);
    for (step, of_step) in (1..).zip(&values.gradients) {
        optimizer.set_frozen("0*", (1..4).contains(&step));
        optimizer.set_frozen("1*", (3..6).contains(&step));
        let mut gradients = gradients(&model, of_step);
        optimizer.update(&mut model, &mut gradients).unwrap();
        let what = format!("{name}, step {step}");
        let expected = &values.cases[name][step as usize - 1];
        assert_close(&what, numbers(&model), expected, 1e-14);
    }
}

/// PyTorch counts the steps of each parameter, and corrects means by that.
#[test]
fn freezing() {
    let adamw = AdamWConfig {
        lr: 0.03,
        betas: [0.8, 0.95],
        epsilon: 1e-3,
        weight_decay: 0.2,
    };
    assert_steps_with_freezing("adamw_freezing", adamw);
    let sgd = SgdConfig {
        lr: 0.1,
        momentum: 0.9,
        dampening: 0.25,
        weight_decay: 0.3,
        ..SgdConfig::default()
    };
    assert_steps_with_freezing("sgd_freezing", sgd);
    let adafactor = AdafactorConfig {
        lr: 0.05,
        weight_decay: 0.1,
        ..AdafactorConfig::default()
    };
    assert_steps_with_freezing("adafactor_freezing", adafactor);
}

/// All steps in both types: in f64 to some roundings, in f32 to those of six steps of numbers up to 3.
fn assert_steps<A: Algorithm>(name: &str, config: impl Fn(u64) -> A) {
    run::<f64, _>(name, &config, 1e-14);
    run::<f32, _>(name, &config, 3e-6);
}

#[test]
fn adamw() {
    assert_steps("adamw", |step| AdamWConfig {
        lr: 0.03 / step as f64,
        betas: [0.8, 0.95],
        epsilon: 1e-3,
        weight_decay: 0.2,
    });
}

#[test]
fn sgd() {
    let plain = SgdConfig {
        lr: 0.1,
        weight_decay: 0.3,
        ..SgdConfig::default()
    };
    assert_steps("sgd", |_| plain);
    assert_steps("sgd_momentum", |step| SgdConfig {
        lr: 0.1 / step as f64,
        momentum: 0.9,
        dampening: 0.25,
        ..plain
    });
    assert_steps("sgd_nesterov", |_| SgdConfig {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.0,
        ..plain
    });
}

#[test]
fn lion() {
    assert_steps("lion", |_| LionConfig {
        lr: 0.01,
        betas: [0.8, 0.95],
        weight_decay: 0.5,
    });
}

#[test]
fn adafactor() {
    assert_steps("adafactor_clipped", |_| AdafactorConfig {
        lr: 0.5,
        beta2_decay: -0.5,
        epsilon: Some(1e-2),
        smallest: 2.0,
        clip: 1.0,
        weight_decay: 0.0,
    });
    // The default of epsilon is that of the type.
    let config = AdafactorConfig {
        lr: 0.05,
        weight_decay: 0.1,
        ..AdafactorConfig::default()
    };
    run::<f64, _>("adafactor", |_| config, 1e-14);
}

#[test]
fn muon() {
    let adamw = AdamWConfig {
        lr: 0.01,
        betas: [0.8, 0.95],
        weight_decay: 0.2,
        ..AdamWConfig::default()
    };
    let config = MuonConfig {
        lr: 0.05,
        hidden: |_| true,
        adamw,
        ..MuonConfig::default()
    };
    assert_steps("muon", |_| config);
    assert_steps("muon_heavy", |_| MuonConfig {
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.3,
        iterations: 3,
        scale: MuonScale::MatchRmsAdamW,
        ..config
    });
}

/// The step by a matrix with the norm 1, of which the iteration leaves the singular values as they are.
fn length<const OUTPUTS: usize, const INPUTS: usize>(scale: MuonScale) -> f64 {
    let mut model: Tensor<Rank2<OUTPUTS, INPUTS>, f64, Cpu> = Cpu::default().zeros();
    let mut optimizer = Optimizer::new(MuonConfig {
        lr: 0.05,
        momentum: 0.0,
        hidden: |_| true,
        coefficients: [1.0, 0.0, 0.0],
        iterations: 1,
        scale,
        ..MuonConfig::default()
    });
    let mut gradients = model.leaky_trace().sum().backward();
    optimizer.update(&mut model, &mut gradients).unwrap();
    let squares = model.as_vec().into_iter().map(|x| x * x);
    squares.sum::<f64>().sqrt()
}

#[test]
fn the_length_of_a_step_of_muon_is_by_its_scale() {
    for (scale, name) in [
        (MuonScale::Original, "original"),
        (MuonScale::MatchRmsAdamW, "match_rms_adamw"),
        (MuonScale::SpectralUnclamped, "spectral_unclamped"),
    ] {
        let found = [length::<2, 8>(scale), length::<8, 2>(scale)];
        for (found, expected) in found.iter().zip(values().lengths[name]) {
            assert!((found - expected).abs() < 1e-15, "{name}: {found}");
        }
    }
}

/// The first step of AdamW with a parameter is as long as any first step, however many steps of another algorithm came before.
#[test]
fn lists_that_begin_later_count_anew() {
    let mut model: Tensor<Rank2<1, 1>, f64, Cpu> = Cpu::default().ones();
    let mut optimizer = Optimizer::new(MuonConfig {
        weight_decay: 0.0,
        adamw: AdamWConfig {
            weight_decay: 0.0,
            ..AdamWConfig::default()
        },
        ..MuonConfig::default()
    });
    let mut step = |hidden: fn(&ParameterInfo<'_>) -> bool| {
        optimizer.config.hidden = hidden;
        let before = model.array()[0][0];
        let mut gradients = model.leaky_trace().sum().backward();
        optimizer.update(&mut model, &mut gradients).unwrap();
        let names: Vec<_> = optimizer.state.lists.keys().cloned().collect();
        (before - model.array()[0][0], names)
    };
    for _ in 0..50 {
        assert_eq!(step(|_| true).1, [".momentum"]);
    }
    for _ in 0..3 {
        let (length, names) = step(|_| false);
        let rate = AdamWConfig::default().lr;
        assert!((length / rate - 1.0).abs() < 1e-7, "{length}");
        assert_eq!(names, [".mean", ".square"]);
    }
}

fn schedule_free_with(name: &str, config: ScheduleFreeConfig) {
    let (mut model, mut optimizer, values) = run::<f64, _>(name, |_| config, 1e-14);
    run::<f32, _>(name, |_| config, 3e-6);
    let steps = numbers(&model);
    for _ in 0..2 {
        optimizer.eval(&mut model).unwrap();
        assert!(optimizer.evaluates());
        let mean = values.cases[name].last().unwrap();
        assert_close(name, numbers(&model), mean, 1e-14);
    }
    for _ in 0..2 {
        optimizer.train(&mut model).unwrap();
        assert!(!optimizer.evaluates());
        for (found, before) in numbers(&model).concat().iter().zip(steps.concat()) {
            assert!((found - before).abs() <= 1e-14, "{found} is not {before}");
        }
    }
}

#[test]
fn schedule_free() {
    let config = ScheduleFreeConfig {
        lr: 0.03,
        ..ScheduleFreeConfig::default()
    };
    schedule_free_with(
        "schedule_free",
        ScheduleFreeConfig {
            betas: [0.8, 0.95],
            weight_decay: 0.2,
            ..config
        },
    );
    schedule_free_with(
        "schedule_free_warm",
        ScheduleFreeConfig {
            warm_up: 3,
            power: 0.5,
            lr_power: 1.5,
            ..config
        },
    );
}

/// A step at the mean of the steps would be one of another algorithm.
/// A group has the steps of an optimizer with its settings, also one that goes on from a state.
#[test]
fn groups_of_schedule_free_have_means_of_their_own() {
    let values = values();
    let slow = |config: &mut ScheduleFreeConfig| {
        config.lr = 0.01;
        config.warm_up = 4;
        config.power = 1.0;
    };
    let [fast_config, mut slow_config] = [ScheduleFreeConfig::default(); 2];
    slow(&mut slow_config);
    let train = |mut optimizer: ScheduleFree<f64>, steps: &[Named], mut model: Model<f64>| {
        for of_step in steps {
            let mut gradients = gradients(&model, of_step);
            optimizer.update(&mut model, &mut gradients).unwrap();
        }
        (optimizer, model)
    };
    let begin = || model::<f64>(&values.starts);
    let grouped = || ScheduleFree::new(fast_config).group("1*", slow);
    let (first, others) = values.gradients.split_at(3);
    let (before, model) = train(grouped(), first, begin());
    let mut resumed = grouped();
    resumed.state = before.state.clone();
    let (mut optimizer, mut model) = train(resumed, others, model);
    let alone = |config| {
        let all = &values.gradients;
        train(ScheduleFree::new(config), all, begin())
    };
    let [mut fast, mut slow] = [fast_config, slow_config].map(alone);
    for evaluates in [false, true] {
        if evaluates {
            optimizer.eval(&mut model).unwrap();
            fast.0.eval(&mut fast.1).unwrap();
            slow.0.eval(&mut slow.1).unwrap();
        }
        let [matrix, vector, stack] = numbers(&model);
        let [fast, slow] = [&fast.1, &slow.1].map(numbers);
        assert_eq!([&matrix, &vector, &stack], [&fast[0], &slow[1], &fast[2]]);
        assert_ne!(vector, fast[1]);
    }
    let names = optimizer.state.numbers.keys();
    assert!(names.into_iter().any(|name| name == "[1*] weight_sum"));
}

#[test]
fn a_schedule_free_step_needs_the_parameters_of_training() {
    let values = values();
    let mut model = model::<f64>(&values.starts);
    let mut optimizer = ScheduleFree::new(ScheduleFreeConfig::default());
    let step = |model: &mut Model<f64>, optimizer: &mut ScheduleFree<f64>| {
        let mut gradients = gradients(model, &values.gradients[0]);
        optimizer.update(model, &mut gradients)
    };
    step(&mut model, &mut optimizer).unwrap();
    optimizer.eval(&mut model).unwrap();
    let before = numbers(&model);
    let error = step(&mut model, &mut optimizer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model has the mean of the steps: call `train` before the next step"
    );
    assert_eq!(numbers(&model), before);
    optimizer.train(&mut model).unwrap();
    step(&mut model, &mut optimizer).unwrap();
}

/// `torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.75))`, by its formula.
#[test]
fn an_average_of_parameters() {
    let values = values();
    let mut ema = Ema::new(0.75);
    let mut expected = values.starts.clone();
    ema.update(&model::<f64>(&values.starts)).unwrap();
    for step in &values.gradients {
        ema.update(&model::<f64>(step)).unwrap();
        for (name, average) in &mut expected {
            for (average, x) in average.iter_mut().zip(&step[name]) {
                *average = 0.75 * *average + 0.25 * x;
            }
        }
    }
    let mut averaged = model::<f64>(&values.starts);
    ema.copy_to(&mut averaged).unwrap();
    assert_close("the average", numbers(&averaged), &expected, 1e-15);

    let mut other: Tensor<Rank1<2>, f64, _> = Cpu::default().ones();
    let error = ema.copy_to(&mut other).unwrap_err();
    assert!(
        matches!(
            error,
            UpdateError::StateMismatch {
                expected: 2,
                found: 0,
                ..
            }
        ),
        "{error}"
    );
    assert!(ema.update(&other).is_err());
    assert_eq!(other.array(), [1.0; 2]);
    let error = Ema::new(1.5).update(&other).unwrap_err();
    assert_eq!(error.to_string(), "`decay` is 1.5, but must be in 0..=1");
}

/// A setting that is not allowed is an error that names it, before anything changes.
#[test]
fn settings_are_checked() {
    fn error<A: Algorithm>(config: A) -> String {
        let mut model: Tensor<Rank1<1>, f32, _> = Cpu::default().ones();
        let mut gradients = model.alloc_grads();
        let error = Optimizer::new(config).update(&mut model, &mut gradients);
        assert_eq!(model.array(), [1.0]);
        error.unwrap_err().to_string()
    }
    let sgd = SgdConfig::default();
    let lion = LionConfig::default();
    let adafactor = AdafactorConfig::default();
    let muon = MuonConfig::default();
    let free = ScheduleFreeConfig::default();
    let not_negative = "finite and not negative";
    let found = [
        error(SgdConfig { lr: -1.0, ..sgd }),
        error(SgdConfig {
            momentum: 1.0,
            ..sgd
        }),
        error(SgdConfig {
            dampening: f64::NAN,
            ..sgd
        }),
        error(LionConfig {
            betas: [0.5, 1.5],
            ..lion
        }),
        error(AdafactorConfig {
            beta2_decay: 0.5,
            ..adafactor
        }),
        error(AdafactorConfig {
            clip: 0.0,
            ..adafactor
        }),
        error(AdafactorConfig {
            epsilon: Some(-1.0),
            ..adafactor
        }),
        error(MuonConfig {
            momentum: -0.5,
            ..muon
        }),
        error(MuonConfig {
            coefficients: [3.0, f64::NAN, 2.0],
            ..muon
        }),
        error(MuonConfig {
            iterations: 0,
            ..muon
        }),
        error(MuonConfig {
            adamw: AdamWConfig {
                betas: [0.9, 1.0],
                ..muon.adamw
            },
            ..muon
        }),
        error(ScheduleFreeConfig {
            betas: [0.0, 0.5],
            ..free
        }),
        error(ScheduleFreeConfig {
            power: f64::INFINITY,
            ..free
        }),
    ];
    let expected = [
        format!("`lr` is -1, but must be {not_negative}"),
        "`momentum` is 1, but must be in 0..1".into(),
        "`dampening` is NaN, but must be in 0..1".into(),
        "`betas[1]` is 1.5, but must be in 0..1".into(),
        "`beta2_decay` is 0.5, but must be finite and at most 0".into(),
        "`clip` is 0, but must be more than 0".into(),
        format!("`epsilon` is -1, but must be {not_negative}"),
        "`momentum` is -0.5, but must be in 0..1".into(),
        "`coefficients[1]` is NaN, but must be finite".into(),
        "`iterations` is 0, but must be 1 or more".into(),
        "`adamw.betas[1]` is 1, but must be in 0..1".into(),
        "`betas[0]` is 0, but must be greater than 0 and less than 1".into(),
        format!("`power` is inf, but must be {not_negative}"),
    ];
    assert_eq!(found, expected);
}
