//! The operation that a step names if a number is not finite.

use attn::{
    __private::runtime::fused::Operation,
    Error,
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
        (first.value.as_str(), first.operation.as_str(), first.pass),
        ("scale", "[0]", Pass::Input)
    );
}

/// At the first step the learning rate has changed nothing, and NaN of an input is not computed at any step.
#[test]
fn nan_of_an_input_is_named_with_its_place_and_without_advice() {
    let mut trainer = deep();
    let (x, _) = batch(1.0);
    for step in [1, 2] {
        let mut numbers = x.as_vec();
        numbers[6] = f64::NAN;
        let wrong: X = Cpu::default().tensor_from_vec(numbers, (2, Const));
        let error = trainer.step((wrong, batch(1.0).1)).unwrap_err().to_string();
        let start = format!("step {step}: the loss is NaN, ");
        assert!(error.starts_with(&start), "{error}");
        assert!(
            error.ends_with("; the input `x` has NaN at [1, 2]"),
            "{error}"
        );
        trainer.step(batch(1.0)).unwrap();
    }
    let mut trainer = deep();
    let error = trainer.step(batch(f64::INFINITY)).unwrap_err().to_string();
    assert!(error.contains("the result of `expand`"), "{error}");
    assert!(!error.contains("learning rate"), "{error}");
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

model! {
    /// Dropouts of several operations and layers, in rounds. The last is not finite where `x` was dropped in none of them.
    struct Drops<d = 4>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param gain: [d] = 1;
        let mut x = x * gain;
        repeat 2 {
            x += attention::<heads = 2, dropout = 0.3>(x);
            x += dropout::<0.5>(feed_forward::<8, dropout = 0.3>(x));
        }
        x
    }

    fn loss(x: [batch, seq, d], limit: [batch]) -> [] {
        let y = forward(x);
        let below = limit - sum::<[seq, d]>(pow(y, 2));
        let root = sqrt(below);
        mean::<[batch]>(root)
    }
}

/// The limit is such that the loss is finite with some dropouts, and not with others.
#[test]
fn dropouts_in_layers_and_rounds_are_drawn_again_in_their_order() {
    let dev = Cpu::seed_from_u64(5);
    let model = dev.build_module::<Drops, f64>();
    let x: Tensor<(usize, usize, Const<4>), f64, _> = dev.sample_normal_like(&(1, 3, Const));
    let batch = |limit: f64| (x.clone(), dev.tensor_from_vec(vec![limit], (1,)));
    let trainer = |seed| model.clone().trainer(SgdConfig::default()).seed(seed);
    for seed in 0..10 {
        // The loss tells the sum with the dropouts of this seed.
        let loss = trainer(seed).step(batch(1e6)).unwrap().loss;
        let sum = 1e6 - loss * loss;
        // A relative 1e-3 is more than the rounding of 1e6 - y, and less than the difference between two draws.
        trainer(seed).step(batch(sum * 1.001)).unwrap();
        let first = named(&mut trainer(seed), batch(sum * 0.999));
        assert_eq!(first.unwrap().value, "root", "seed {seed}");
    }
}

#[test]
fn nothing_has_changed_after_the_search() {
    let dev = Cpu::seed_from_u64(5);
    let x: Tensor<(usize, usize, Const<4>), f64, _> = dev.sample_normal_like(&(1, 3, Const));
    let batch = |limit: f64| (x.clone(), dev.tensor_from_vec(vec![limit], (1,)));
    let model = dev.build_module::<Drops, f64>();
    let run = |fails: bool| {
        let mut trainer = model.clone().trainer(SgdConfig::default()).seed(3);
        let mut losses = Vec::new();
        for _ in 0..3 {
            losses.push(trainer.step(batch(1e6)).unwrap().loss.to_bits());
            if fails {
                let state = trainer.state().clone();
                assert!(named(&mut trainer, batch(-1e6)).is_some());
                assert_eq!(*trainer.state(), state);
            }
        }
        let gain = trainer.model().gain.weight.as_vec();
        let bits: Vec<u64> = gain.into_iter().map(f64::to_bits).collect();
        (losses, bits)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn of_several_batches_with_finite_losses_none_is_run_again() {
    let dev = Cpu::default();
    let model = dev.build_module::<Named, f64>();
    let mut trainer = model.trainer(SgdConfig::default());
    let x: Tensor<Rank2<1, 2>, f64, _> = dev.tensor([[0.0, 1.0]]);
    trainer.accumulate(x.clone()).unwrap();
    let finite: Tensor<Rank2<1, 2>, f64, _> = dev.ones();
    assert_eq!(named(&mut trainer, finite), None);
    assert!(named(&mut trainer, x).is_some());
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
    let step = trainer.step(batch(f64::NAN)).unwrap();
    assert_eq!((step.skipped, step.learning_rate), (true, None));
    let mut trainer = trainer.non_finite(NonFinite::Stop);
    assert!(named(&mut trainer, batch(f64::NAN)).is_some());
}

/// Views with rows beyond any memory, which have none of their own.
#[test]
fn the_memory_of_the_search_is_asked_for_before_it_begins() {
    let dev = Cpu::default();
    let rows = 1 << 40;
    let row: Tensor<Rank1<4>, f64, _> = dev.ones();
    let x: X = row.broadcast_like::<_, Axis<0>>(&(rows, Const));
    let scale: Scale = dev.tensor(1.0).broadcast_like::<_, Axis<0>>(&(rows,));
    let model = dev.build_module::<Deep, f64>();
    let refused = (x, scale).first_non_finite(&model);
    let Err(Error::TooLarge { sizes, .. }) = refused else {
        panic!("{refused:?}");
    };
    // Three layers of a norm, a product and a sum, and the head: each result with its gradient.
    let least = 2 * 8 * 10 * 4 * rows;
    assert!(
        matches!(sizes[..], [(_, bytes)] if bytes >= least),
        "{sizes:?}"
    );
}

/// A batch with a search that is refused.
#[derive(Clone)]
struct Large(X, Scale);

impl TrainBatch<Deep<f64, Cpu>> for Large {
    fn loss<T: Tape<f64, Cpu>>(
        self,
        model: &Deep<f64, Cpu>,
        operation: Operation<f64, Cpu, T>,
    ) -> Result<Tensor<Rank0, f64, Cpu, T>, Error<CpuError>> {
        (self.0, self.1).loss(model, operation)
    }

    fn rows(&self) -> usize {
        1
    }

    fn targets(&self) -> usize {
        1
    }

    fn first_non_finite(
        self,
        _: &Deep<f64, Cpu>,
    ) -> Result<Option<values::NonFinite>, Error<CpuError>> {
        Err(Error::TooLarge {
            layer: "Deep::loss",
            sizes: vec![("size of activations in bytes", 1 << 50)],
        })
    }
}

#[test]
fn a_search_that_is_refused_says_why() {
    let (x, scale) = batch(f64::NAN);
    let error = deep().step(Large(x, scale)).unwrap_err();
    let TrainError::NotFinite { first, search, .. } = &error else {
        panic!("{error}");
    };
    assert!(first.is_none());
    assert!(matches!(search.as_deref(), Some(Error::TooLarge { .. })));
    let text = error.to_string();
    assert!(
        text.contains("; the first operation cannot be looked for: Deep::loss: "),
        "{text}"
    );
}
