//! Models that an optimizer is not of.

use dfdx::prelude::*;

use crate::train::{AdamW, AdamWConfig, AdamWState, UpdateError, scale_grads};

type Model = Tensor<Rank1<1>, f64, Cpu>;

fn step(optimizer: &mut AdamW<f64>, model: &mut Model) -> Result<f64, String> {
    let before = model.array()[0];
    let mut gradients = model.leaky_trace().square().sum().backward();
    match optimizer.update(model, &mut gradients) {
        Ok(()) => Ok(model.array()[0]),
        Err(error) => {
            assert!(matches!(error, UpdateError::OtherModel { .. }), "{error}");
            assert_eq!(model.array()[0], before, "nothing was changed");
            Err(error.to_string())
        }
    }
}

fn models() -> [Model; 2] {
    let dev = Cpu::default();
    [dev.tensor([1.0]), dev.tensor([2.0])]
}

#[test]
fn a_second_model_is_refused_and_the_first_one_can_continue() {
    let [mut first, mut second] = models();
    let [mut alone, _] = models();
    let mut optimizer = AdamW::new(Default::default());
    let mut its_own = AdamW::new(Default::default());
    for _ in 0..3 {
        let found = step(&mut optimizer, &mut first);
        assert_eq!(found, step(&mut its_own, &mut alone));
        let refused = step(&mut optimizer, &mut second);
        assert_eq!(
            refused.err().as_deref(),
            Some(
                "this optimizer is of another model, which has not the same parameter: a second model takes an `AdamW` of its own"
            )
        );
    }
}

#[test]
fn models_with_more_or_fewer_parameters_are_refused() {
    type Pair = (Model, Model);
    let mut pair: Pair = models().into();
    let mut optimizer = AdamW::<f64>::new(AdamWConfig::default());
    let mut gradients = pair.alloc_grads();
    optimizer
        .update(&mut pair, &mut gradients)
        .expect("the first step");
    let mut update = |model: &mut (Model,)| {
        let mut gradients = model.alloc_grads();
        optimizer
            .update(model, &mut gradients)
            .err()
            .map(|error| error.to_string())
    };
    // dfdx appends a dot to the index in a tuple, also at the end of a name.
    let refused = |name: &str| {
        Some(format!(
            "this optimizer is of another model, which has not the same `{name}`: a second model takes an `AdamW` of its own"
        ))
    };
    assert_eq!(update(&mut (pair.0.clone(),)), refused("1."));
    assert_eq!(update(&mut (pair.1.clone(),)), refused("0."));
}

#[test]
fn clones_and_replaced_states_are_accepted() {
    let [mut first, mut second] = models();
    let mut optimizer = AdamW::new(Default::default());
    step(&mut optimizer, &mut first).expect("the first step");
    step(&mut optimizer, &mut first.clone()).expect("a clone has its parameters");
    optimizer.state = AdamWState::default();
    let found = step(&mut optimizer, &mut second);
    let [_, mut alone] = models();
    assert_eq!(found, step(&mut AdamW::new(Default::default()), &mut alone));
}

#[test]
fn factors_that_are_not_finite_are_refused() {
    let [model, _] = models();
    for factor in [f64::NAN, 1.0 / 0.0] {
        let mut gradients = model.alloc_grads();
        let refused = scale_grads(&model, &mut gradients, factor).err();
        let message = refused.map(|error| error.to_string());
        assert_eq!(
            message,
            Some(format!("`factor` is {factor}, but must be a finite number"))
        );
        assert_eq!(gradients.get(&model).array(), [0.0]);
    }
}
