//! The operation that a step names if a number is not finite.

use attn::{
    dfdx::prelude::*,
    model,
    train::{NonFinite, SgdConfig, TrainBatch, TrainError, Trainable, Trainer},
    values::{self, Pass},
};

/// What the error of a step names.
fn named<M, B>(trainer: &mut Trainer<M, SgdConfig>, batch: B) -> Option<values::NonFinite>
where
    M: Trainable<Device = Cpu>,
    B: TrainBatch<M>,
{
    match trainer.step(batch) {
        Err(TrainError::NotFinite { first, .. }) => first,
        Err(error) => panic!("{error}"),
        Ok(step) => panic!("{step:?}"),
    }
}

model! {
    struct Deep<d = 4, layers = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat layers {
            x += linear::<d, name = inner>(layer_norm(x));
        }
        linear::<d, name = head>(x)
    }

    fn loss(x: [batch, d], scale: [batch]) -> [] {
        let y = forward(x);
        mean::<[batch, d]>(scale * pow(y, 2))
    }
}

type X = Tensor<(usize, Const<4>), f64, Cpu>;
type Scale = Tensor<(usize,), f64, Cpu>;

fn batch(scale: f64) -> (X, Scale) {
    let dev = Cpu::seed_from_u64(3);
    let numbers = (0..8).map(f64::from).collect();
    (
        dev.tensor_from_vec(numbers, (2, Const)),
        dev.tensor_from_vec(vec![scale, 1.0], (2,)),
    )
}

fn deep() -> Trainer<Deep<f64, Cpu>, SgdConfig> {
    let model = Cpu::seed_from_u64(1).build_module::<Deep, f64>();
    model.trainer(SgdConfig::default())
}

#[test]
fn the_first_result_that_is_not_finite_is_named_with_its_place() {
    let mut trainer = deep();
    trainer.step(batch(1.0)).unwrap();
    let damaged = &mut trainer.model_mut().blocks.modules[1].inner.bias;
    *damaged = Cpu::default().tensor([0.0, f64::INFINITY, 0.0, 0.0]);
    let first = named(&mut trainer, batch(1.0)).unwrap();
    assert_eq!(first.pass, Pass::Forward);
    assert_eq!(first.operation, "blocks.1.inner");
    let error = trainer.step(batch(1.0)).unwrap_err().to_string();
    assert!(
        error.contains("; forward: `blocks.1.linear`, the result of `blocks.1.inner`, has the number inf: training has diverged"),
        "{error}"
    );
}

#[test]
fn it_reads_the_parameters_of_the_last_step() {
    let mut trainer = deep();
    // Steps that grow without a bound: the parameters of the model's tensors are still those of the beginning.
    trainer.config_mut().lr = 1e100;
    let first = (0..50).find_map(|_| match trainer.step(batch(1e10)) {
        Ok(_) => None,
        Err(TrainError::NotFinite { first, .. }) => Some(first),
        Err(error) => panic!("{error}"),
    });
    assert!(first.flatten().is_some());
}

#[test]
fn inputs_by_name_are_run_again_too() {
    let mut trainer = deep();
    let (x, scale) = batch(f64::NAN);
    let first = named(&mut trainer, DeepLossInputs { x, scale }).unwrap();
    assert_eq!(
        (first.operation.as_str(), first.pass),
        ("expand", Pass::Forward)
    );
}

model! {
    /// The derivative of `sqrt` at 0 is infinite.
    struct Named<d = 2>;

    fn forward(x: [batch, d]) -> [batch, d] {
        param gain: [d] = 1;
        let y = x * gain;
        sqrt(y)
    }

    fn loss(x: [batch, d]) -> { loss: [] } {
        { loss: mean::<[batch, d]>(forward(x)) }
    }
}

#[test]
fn the_first_gradient_that_is_not_finite_is_named() {
    let dev = Cpu::default();
    let mut trainer = dev
        .build_module::<Named, f64>()
        .trainer(SgdConfig::default());
    let x: Tensor<Rank2<1, 2>, f64, _> = dev.tensor([[0.0, 1.0]]);
    let first = named(&mut trainer, x).unwrap();
    assert_eq!(
        (first.value.as_str(), first.pass),
        ("y", Pass::Backward),
        "{first}"
    );
}

model! {
    struct Overflow<d = 2>;

    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1, bias = false>(x)
    }

    fn loss(x: [batch, d]) -> [] {
        sum::<[batch, 1]>(forward(x))
    }
}

#[test]
fn a_gradient_of_a_parameter_alone_names_the_parameter() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Overflow, f64>();
    model.linear.weight = dev.tensor([[1e-300, 0.0]]);
    let mut trainer = model.trainer(SgdConfig::default());
    // The gradient of the weight is a sum of rows, which overflows.
    let x: Tensor<Rank2<2, 2>, f64, _> = dev.tensor([[f64::MAX, 0.0]; 2]);
    match trainer.step(x) {
        Err(TrainError::NotFinite {
            parameter, first, ..
        }) => {
            assert_eq!(parameter.as_deref(), Some("linear.weight"));
            assert_eq!(first, None);
        }
        other => panic!("{other:?}"),
    }
}

model! {
    /// Not finite if the one number is dropped.
    struct Dropped<d = 1>;

    fn forward(x: [batch, d]) -> [batch, d] {
        param gain: [d] = 1;
        let kept = dropout::<0.5>(x * gain);
        let inverse = 1 / kept;
        inverse
    }

    fn loss(x: [batch, d]) -> [] {
        mean::<[batch, d]>(forward(x))
    }
}

#[test]
fn the_batch_is_run_again_with_its_dropouts() {
    let dev = Cpu::seed_from_u64(0);
    let x: Tensor<Rank2<1, 1>, f64, _> = dev.ones();
    let model = dev.build_module::<Dropped, f64>();
    let mut dropped = 0;
    for seed in 0..40 {
        let mut trainer = model.clone().trainer(SgdConfig::default()).seed(seed);
        match trainer.step(x.clone()) {
            Ok(_) => {}
            Err(TrainError::NotFinite { first, .. }) => {
                dropped += 1;
                assert_eq!(first.unwrap().value, "inverse", "seed {seed}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Half of 40, give or take four standard deviations.
    assert!((8..=32).contains(&dropped), "{dropped}");
}

#[test]
fn of_accumulated_batches_it_is_the_one_that_is_not_finite() {
    let mut trainer = deep();
    trainer.accumulate(batch(1.0)).unwrap();
    trainer.accumulate(batch(f64::INFINITY)).unwrap();
    trainer.accumulate(batch(1.0)).unwrap();
    let error = trainer.apply().unwrap_err().to_string();
    assert!(error.contains("the result of `expand`"), "{error}");
    // It is forgotten with the batches.
    trainer.step(batch(1.0)).unwrap();
    assert!(named(&mut trainer, batch(f64::NAN)).is_some());
}

#[test]
fn where_such_steps_are_skipped_nothing_runs_again() {
    let mut trainer = deep().non_finite(NonFinite::Skip);
    assert!(trainer.step(batch(f64::NAN)).unwrap().skipped);
    let mut trainer = trainer.non_finite(NonFinite::Stop);
    assert!(named(&mut trainer, batch(f64::NAN)).is_some());
}
