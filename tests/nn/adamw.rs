//! The optimizer.

use super::*;
use attn::{
    attention,
    nn::{LayerNorm, Linear, UnbiasedLinear},
    train::{AdamW, AdamWConfig, AdamWState, UpdateError},
};
use dfdx::optim::{Adam, AdamConfig, Optimizer, OptimizerUpdateError};
use support::{
    adamw::{Naive, Settings},
    tensors::{fill, parameters},
};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
}

/// Hyperparameters that all matter.
const CONFIG: AdamWConfig = AdamWConfig {
    lr: 0.03,
    betas: [0.8, 0.95],
    epsilon: 1e-3,
    weight_decay: 0.2,
};

type Model<E> = (
    Linear<3, 5, E, Cpu>,
    LayerNorm<5, E, Cpu>,
    UnbiasedLinear<5, 2, E, Cpu>,
);

fn model<E: Element>() -> Model<E>
where
    Cpu: Backend<E>,
{
    let mut model = Model::<E>::build(&Cpu::default());
    fill(&mut model, |name, values| scattered(name, values.len()));
    model
}

/// Gradients of some loss, different for every step.
fn gradients<E: Element>(model: &Model<E>, step: usize) -> Gradients<E, Cpu>
where
    Cpu: Backend<E>,
{
    let x: Tensor<Rank2<4, 3>, E, _> = tensor(&format!("x of {step}"), Default::default());
    model
        .forward(x.traced(model.alloc_grads()))
        .square()
        .mean()
        .backward()
}

fn twenty_steps<E: Element>()
where
    Cpu: Backend<E>,
{
    let mut model = model::<E>();
    let mut optimizer = AdamW::new(CONFIG);
    let mut naive = Naive::default();
    for step in 1..=20 {
        // A schedule.
        optimizer.config.lr = CONFIG.lr / step as f64;
        let mut gradients = gradients(&model, step);
        let before = parameters(&model);
        let of = support::tensors::gradients(&model, &gradients);
        optimizer.update(&mut model, &mut gradients).unwrap();
        for ((mut p, g), after) in before.into_iter().zip(of).zip(parameters(&model)) {
            let decays = p.dims.len() > 1;
            let settings = Settings {
                lr: optimizer.config.lr,
                betas: CONFIG.betas,
                epsilon: CONFIG.epsilon,
                weight_decay: CONFIG.weight_decay,
            };
            naive.step(
                settings,
                step as i32,
                &p.name,
                &mut p.values,
                &g.values,
                decays,
            );
            compare::assert_close(
                format!("{} in step {step}", p.name),
                &after.values,
                &p.values,
                // The moments carry the roundings of 20 steps.
                10.0 * E::epsilon().into(),
            );
        }
    }
    assert_eq!(optimizer.state.step, 20);
    assert_eq!(optimizer.state.lists.len(), 2 * naive.0.len());
    for (name, moments) in &naive.0 {
        for (of, moment) in ["mean", "square"].iter().zip(moments) {
            let found = &optimizer.state.lists[&format!("{name}.{of}")];
            let found: Vec<f64> = found.iter().map(|&x| x.into()).collect();
            compare::assert_close(name, &found, moment, 40.0 * E::epsilon().into());
        }
    }
}

#[test]
fn steps_follow_the_algorithm_of_the_paper() {
    for_both!(twenty_steps);
}

#[test]
fn steps_without_decay_are_those_of_adam() {
    let mut other = model::<f64>();
    let mut model = model::<f64>();
    let config = AdamWConfig {
        weight_decay: 0.0,
        ..CONFIG
    };
    let mut optimizer = AdamW::new(config);
    let mut adam = Adam::new(
        &other,
        AdamConfig {
            lr: config.lr,
            betas: config.betas,
            eps: config.epsilon,
            weight_decay: None,
        },
    );
    for step in 0..20 {
        let mut ours = gradients(&model, step);
        optimizer.update(&mut model, &mut ours).unwrap();
        let theirs = gradients(&other, step);
        adam.update(&mut other, &theirs).unwrap();
    }
    for (found, expected) in parameters(&model).iter().zip(parameters(&other)) {
        // Each step starts from gradients that already differ.
        compare::assert_close(&found.name, &found.values, &expected.values, 1e-12);
    }
}

#[test]
fn parameters_of_a_declared_layer_all_move() {
    let mut model = Cpu::default().build_module::<Causal, f32>();
    let before = parameters(&model);
    let x: Tensor<Rank3<2, 5, 8>, f32, _> = tensor("x", Default::default());
    let mut gradients = model.forward(x.leaky_traced()).square().sum().backward();
    let mut optimizer = AdamW::new(AdamWConfig::default());
    optimizer.update(&mut model, &mut gradients).unwrap();
    for (before, after) in before.iter().zip(parameters(&model)) {
        // The bias of a key shifts a whole row of scores, which a softmax cancels.
        if before.name != "k_proj.bias" {
            assert_ne!(before.values, after.values, "{}", before.name);
        }
    }
}

/// A file: the step, and for each list its name, its length and its numbers.
fn save(state: &AdamWState<f32>) -> Vec<u8> {
    let mut bytes = state.step.to_le_bytes().to_vec();
    for (name, list) in &state.lists {
        bytes.extend(format!("{name}\n{}\n", list.len()).bytes());
        bytes.extend(list.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

fn load(bytes: &[u8]) -> AdamWState<f32> {
    let (step, mut rest) = bytes.split_first_chunk().unwrap();
    let mut state = AdamWState {
        step: u64::from_le_bytes(*step),
        ..AdamWState::default()
    };
    while !rest.is_empty() {
        let mut lines = rest.splitn(3, |&byte| byte == b'\n');
        let [name, len] =
            [(); 2].map(|()| String::from_utf8(lines.next().unwrap().into()).unwrap());
        let (numbers, others) = lines
            .next()
            .unwrap()
            .split_at(4 * len.parse::<usize>().unwrap());
        let (numbers, _) = numbers.as_chunks();
        let numbers = numbers.iter().map(|&number| f32::from_le_bytes(number));
        state.lists.insert(name, numbers.collect());
        rest = others;
    }
    state
}

#[test]
fn resumed_training_has_the_same_bits() {
    let run = |model: &mut Model<f32>, state, steps: std::ops::Range<usize>| {
        let mut optimizer = AdamW::new(CONFIG);
        optimizer.state = state;
        for step in steps {
            let mut gradients = gradients(model, step);
            optimizer.update(model, &mut gradients).unwrap();
        }
        optimizer.state
    };
    let mut whole = model();
    let expected = run(&mut whole, Default::default(), 0..20);

    let mut first = model();
    let file = save(&run(&mut first, Default::default(), 0..10));
    let mut second = model();
    let mut saved = parameters(&first).into_iter();
    fill(&mut second, |_, _| saved.next().unwrap().values);
    let state = run(&mut second, load(&file), 10..20);
    assert_eq!(parameters(&second), parameters(&whole));
    assert_eq!(state, expected);

    // The state matters.
    fill(&mut second, |name, _| {
        let saved = parameters(&first);
        saved
            .into_iter()
            .find(|saved| saved.name == name)
            .unwrap()
            .values
    });
    run(&mut second, Default::default(), 10..20);
    assert_ne!(parameters(&second), parameters(&whole));
}

#[test]
fn a_state_with_a_part_of_the_lists_of_a_parameter_is_an_error() {
    let mut model = model::<f64>();
    let mut optimizer = AdamW::new(CONFIG);
    let mut of_step = gradients(&model, 0);
    optimizer.update(&mut model, &mut of_step).unwrap();
    optimizer.state.lists.remove("0.bias.mean").unwrap();
    let mut of_step = gradients(&model, 1);
    let error = optimizer.update(&mut model, &mut of_step).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0.bias.mean of this model has 5 numbers, but the state has 0"
    );
    assert_eq!(optimizer.state.step, 1);
    // Without any list, a parameter is a new one.
    optimizer.state.lists.remove("0.bias.square").unwrap();
    optimizer.update(&mut model, &mut of_step).unwrap();
}

#[test]
fn parameters_without_a_gradient_are_named_and_nothing_changes() {
    let mut model = model::<f64>();
    let before = parameters(&model);
    // Only the first layer is used.
    let x: Tensor<Rank2<4, 3>, f64, _> = tensor("x", Default::default());
    let used = || model.0.forward(x.leaky_trace()).square().sum().backward();
    let mut gradients = used();
    let shared = used();
    let mut optimizer = AdamW::new(CONFIG);
    let error = optimizer.update(&mut model, &mut gradients).unwrap_err();
    let UpdateError::NoGradient { names } = &error else {
        panic!("{error}");
    };
    assert_eq!(names, &["1.weight", "1.bias", "2.weight"]);
    assert_eq!(
        error.to_string(),
        "no gradient for 1.weight, 1.bias, 2.weight: is it used by the loss, and is it of this model?"
    );
    assert_eq!(parameters(&model), before);
    assert_eq!(optimizer.state, Default::default());

    // Through dfdx's trait, in the form of dfdx's optimizers.
    let error = Optimizer::update(&mut optimizer, &mut model, &shared).unwrap_err();
    assert!(matches!(error, OptimizerUpdateError::UnusedParams(unused) if unused.ids.len() == 3));
    assert_eq!(parameters(&model), before);

    // They are zeros now.
    optimizer.update(&mut model, &mut gradients).unwrap();
    assert_eq!(gradients.get(&model.1.bias).array(), [0.0; 5]);
}

#[test]
fn gradients_of_other_tensors_are_kept() {
    let mut model = model::<f64>();
    let x: Tensor<Rank2<4, 3>, f64, _> = tensor("x", Default::default());
    let mut gradients = model.forward(x.leaky_trace()).square().sum().backward();
    let before = support::tensors::gradients(&model, &gradients);
    let of_x = gradients.get(&x).array();
    AdamW::new(CONFIG)
        .update(&mut model, &mut gradients)
        .unwrap();
    assert_eq!(support::tensors::gradients(&model, &gradients), before);
    assert_eq!(gradients.get(&x).array(), of_x);
}

#[test]
fn the_optimizer_trait_of_dfdx_takes_the_same_steps() {
    fn train(optimizer: &mut impl Optimizer<Model<f64>, Cpu, f64>, model: &mut Model<f64>) {
        for step in 0..3 {
            let gradients = gradients(model, step);
            optimizer.update(model, &gradients).unwrap();
        }
    }
    let mut ours = model::<f64>();
    let mut theirs = model::<f64>();
    train(&mut AdamW::new(CONFIG), &mut theirs);
    let mut optimizer = AdamW::new(CONFIG);
    for step in 0..3 {
        let mut gradients = gradients(&ours, step);
        optimizer.update(&mut ours, &mut gradients).unwrap();
    }
    assert_eq!(parameters(&ours), parameters(&theirs));
}

#[test]
fn clones_in_one_model_stay_the_same() {
    type Block = Linear<4, 4, f64, Cpu>;
    let block = Block::build(&Cpu::default());
    let mut tied = (block.clone(), block.clone());
    let mut single = Block::build(&Cpu::default());
    fill(&mut single, |_, values| values);
    single.weight.copy_from(&block.weight.as_vec());
    single.bias.copy_from(&block.bias.as_vec());
    let [mut two, mut one] = [(); 2].map(|()| AdamW::new(CONFIG));
    for step in 0..5 {
        let x: Tensor<Rank2<3, 4>, f64, _> = tensor(&format!("x of {step}"), Default::default());
        let y = tied.forward(x.trace(tied.alloc_grads()));
        two.update(&mut tied, &mut y.square().sum().backward())
            .unwrap();
        let y = single.forward(single.forward(x.trace(single.alloc_grads())));
        one.update(&mut single, &mut y.square().sum().backward())
            .unwrap();
        assert_eq!(tied.0.weight.array(), tied.1.weight.array());
        assert_eq!(tied.0.weight.array(), single.weight.array());
        assert_eq!(tied.1.bias.array(), single.bias.array());
    }
}

#[test]
fn the_state_of_another_model_is_an_error() {
    let mut model = model::<f64>();
    let mut optimizer = AdamW::new(CONFIG);
    let lists = [("0.bias.mean", 5), ("0.bias.square", 4)];
    optimizer.state.lists = lists
        .map(|(name, len)| (name.into(), vec![0.0; len]))
        .into();
    let before = parameters(&model);
    let mut gradients = gradients(&model, 0);
    let error = optimizer.update(&mut model, &mut gradients).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0.bias.square of this model has 5 numbers, but the state has 4"
    );
    assert_eq!(parameters(&model), before);
    assert_eq!(optimizer.state.step, 0);
}

#[test]
fn a_model_without_parameters_has_nothing_to_update() {
    let mut optimizer = AdamW::<f32>::new(CONFIG);
    let mut gradients = Gradients::<f32, Cpu>::leaky();
    optimizer.update(&mut (Tanh, Tanh), &mut gradients).unwrap();
}

#[test]
fn threads_change_no_bit() {
    let run = || {
        let mut model = Cpu::default().build_module::<UnbiasedLinear<300, 300>, f32>();
        let mut optimizer = AdamW::new(CONFIG);
        let x: Tensor<Rank2<50, 300>, f32, _> = tensor("x", Default::default());
        for _ in 0..2 {
            let y = model.forward(x.trace(model.alloc_grads()));
            optimizer
                .update(&mut model, &mut y.square().sum().backward())
                .unwrap();
        }
        model.weight.as_vec()
    };
    let expected = run();
    for threads in [1, 2, 3, 8] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        assert!(pool.install(run) == expected, "{threads} threads");
    }
}

#[test]
fn models_in_turns_are_not_confused() {
    let mut first = model::<f64>();
    let mut second = model::<f64>();
    let mut optimizers = [0, 1].map(|_| AdamW::new(CONFIG));
    for step in 0..3 {
        let mut of_first = gradients(&first, step);
        optimizers[0].update(&mut first, &mut of_first).unwrap();
        // The gradients of one model are not those of the other.
        let error = optimizers[1].update(&mut second, &mut of_first);
        assert!(matches!(error, Err(UpdateError::NoGradient { names }) if names.len() == 5));
        let mut of_second = gradients(&second, step);
        optimizers[1].update(&mut second, &mut of_second).unwrap();
        let mut unused = Gradients::leaky();
        let error = optimizers[1].update(&mut second, &mut unused);
        assert!(matches!(error, Err(UpdateError::NoGradient { names }) if names.len() == 5));
    }
    assert_eq!(parameters(&first), parameters(&second));
}

#[test]
fn invalid_hyperparameters_are_errors() {
    let mut model = model::<f32>();
    let before = parameters(&model);
    type Change = fn(&mut AdamWConfig);
    let wrong: [(Change, &str); 9] = [
        (
            |config| config.lr = -1e-3,
            "`lr` is -0.001, but must be finite and not negative",
        ),
        (
            |config| config.lr = f64::NAN,
            "`lr` is NaN, but must be finite and not negative",
        ),
        (
            |config| config.lr = f64::INFINITY,
            "`lr` is inf, but must be finite and not negative",
        ),
        (
            |config| config.betas[0] = 1.0,
            "`betas[0]` is 1, but must be in 0..1",
        ),
        (
            |config| config.betas[0] = -0.1,
            "`betas[0]` is -0.1, but must be in 0..1",
        ),
        (
            |config| config.betas[1] = 1.5,
            "`betas[1]` is 1.5, but must be in 0..1",
        ),
        (
            |config| config.betas[1] = f64::NAN,
            "`betas[1]` is NaN, but must be in 0..1",
        ),
        (
            |config| config.epsilon = -1e-8,
            "`epsilon` is -0.00000001, but must be finite and not negative",
        ),
        (
            |config| config.weight_decay = -1.0,
            "`weight_decay` is -1, but must be finite and not negative",
        ),
    ];
    for (change, message) in wrong {
        let mut optimizer = AdamW::new(CONFIG);
        change(&mut optimizer.config);
        let mut gradients = gradients(&model, 0);
        let error = optimizer.update(&mut model, &mut gradients);
        assert_eq!(error.unwrap_err().to_string(), message);
        assert_eq!(optimizer.state, Default::default());
    }
    assert_eq!(parameters(&model), before);
    let zeros = AdamWConfig {
        lr: 0.0,
        betas: [0.0; 2],
        epsilon: 0.0,
        weight_decay: 0.0,
    };
    let all_gradients = &mut gradients(&model, 0);
    AdamW::new(zeros).update(&mut model, all_gradients).unwrap();
}
