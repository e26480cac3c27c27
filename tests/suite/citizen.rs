//! A declared layer is a dfdx layer: it is built, composed, trained, converted and copied as those are.

use crate::tensors::{Named, fill, flat, gradients, parameters};
use attn::attention;
use dfdx::{
    optim::{
        Adam, AdamConfig, Momentum, Optimizer, RMSprop, RMSpropConfig, Sgd, SgdConfig, WeightDecay,
    },
    prelude::*,
};

attention! {
    struct Causal<heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms>;
    struct Cross<heads = 2, d_model = 8, d_context = 6, qk_norm = rms>;
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct Dropped<heads = 2, d_model = 8, dropout = 0.5>;
}

type FeedForward = (LayerNorm1D<8>, Linear<8, 16>, FastGeLU, Linear<16, 8>);
type Block = (Residual<(LayerNorm1D<8>, Causal)>, Residual<FeedForward>);

type Batched<const M: usize, E = f32> = Tensor<(usize, usize, Const<M>), E, Cpu>;

fn normal<const M: usize>(seed: u64, batch: usize, len: usize) -> Batched<M> {
    Cpu::seed_from_u64(seed).sample_normal_like(&(batch, len, Const))
}

#[test]
fn it_stands_in_a_model_with_norms_and_residuals() {
    let block = Cpu::default().build_module::<Block, f32>();
    let x = normal(1, 2, 5);
    let y = block.forward(x.clone());

    let (Residual((norm, causal)), Residual(feed_forward)) = &block;
    let attended = x.clone() + causal.forward(norm.forward(x));
    let expected = attended.clone() + feed_forward.forward(attended);
    assert_eq!(y.as_vec(), expected.as_vec());
}

#[test]
fn a_model_repeats_it_and_takes_unbatched_input() {
    let model = Cpu::default().build_module::<(Repeated<Block, 2>, Linear<8, 3>), f32>();
    let x: Tensor<(usize, Const<8>), f32, _> = Cpu::default().sample_normal_like(&(5, Const));
    let y: Tensor<(usize, Const<3>), f32, _> = model.forward(x.clone());
    let (Repeated { modules }, linear) = &model;
    let expected = linear.forward(modules[1].forward(modules[0].forward(x)));
    assert_eq!(y.as_vec(), expected.as_vec());
    assert_ne!(parameters(&modules[0]), parameters(&modules[1]));
}

#[test]
fn all_its_names_build_the_same_layer() {
    let seeded = || Cpu::seed_from_u64(4);
    let layer: Causal<f32, Cpu> = seeded().build_module::<Causal, f32>();
    let expected = parameters(&layer);
    let others = [
        Causal::<f32, Cpu>::build(&seeded()),
        Causal::<f32, Cpu>::try_build(&seeded()).expect("there is memory"),
        <Causal as BuildOnDevice<Cpu, f32>>::build_on_device(&seeded()),
        seeded()
            .try_build_module::<Causal, f32>()
            .expect("there is memory"),
        seeded().build_module::<Causal<f64>, f32>(),
        seeded().build_module::<(Causal,), f32>().0,
    ];
    for layer in others {
        assert_eq!(parameters(&layer), expected);
    }
    let _: Causal<f64> = seeded().build_module::<Causal, f64>();
}

#[test]
fn cross_attention_is_a_module_of_pairs() {
    let dev = Cpu::default();
    let (x, context) = (normal::<8>(1, 2, 5), normal::<6>(2, 2, 7));
    let model = dev.build_module::<(Cross, ReLU, Linear<8, 3>), f32>();
    let y: Batched<3> = model.forward((x.clone(), context.clone()));
    let expected = model
        .2
        .forward(model.0.forward((x.clone(), context.clone())).relu());
    assert_eq!(y.as_vec(), expected.as_vec());

    let lengths = || dev.tensor_from_vec(vec![7, 3], (2,));
    let model = dev.build_module::<(PaddedCross, Linear<8, 3>), f32>();
    let y: Batched<3> = model.forward((x.clone(), context.clone(), lengths()));
    let expected = model.1.forward(model.0.forward((x, context, lengths())));
    assert_eq!(y.as_vec(), expected.as_vec());
}

#[test]
fn dfdxs_methods_compute_what_its_own_do() {
    let mut causal = Cpu::default().build_module::<Causal, f32>();
    let x = normal(1, 2, 5);
    let expected = causal.forward(x.clone()).as_vec();
    let results = [
        causal.forward_mut(x.clone()),
        Module::forward(&causal, x.clone()),
        Module::try_forward(&causal, x.clone()).expect("there is memory"),
        ModuleMut::forward_mut(&mut causal, x.clone()),
        ModuleMut::try_forward_mut(&mut causal, x).expect("there is memory"),
    ];
    for y in results {
        assert_eq!(y.as_vec(), expected);
    }

    let mut cross = Cpu::default().build_module::<Cross, f32>();
    let inputs = || (normal(1, 2, 5), normal(2, 2, 7));
    let expected = cross.forward(inputs()).as_vec();
    assert_eq!(Module::forward(&cross, inputs()).as_vec(), expected);
    assert_eq!(
        ModuleMut::forward_mut(&mut cross, inputs()).as_vec(),
        expected
    );
}

#[test]
fn dropout_reaches_it_through_a_model() {
    type Model = (LayerNorm1D<8>, Residual<Dropped>, Linear<8, 8>);
    let mut model = Cpu::default().build_module::<Model, f32>();
    let x = normal(1, 2, 5);
    let expected = model.forward(x.clone()).as_vec();
    assert_eq!(model.forward(x.leaky_trace()).as_vec(), expected);
    assert_eq!(model.forward_mut(x.clone()).as_vec(), expected);
    assert_ne!(model.forward_mut(x.leaky_trace()).as_vec(), expected);
}

/// Trains with an optimizer towards what another layer puts out. `f64`, so that no step is lost to rounding.
fn assert_learns<O: Optimizer<Causal<f64>, Cpu, f64>>(new: impl FnOnce(&Causal<f64>) -> O) {
    let dev = Cpu::seed_from_u64(3);
    let x: Batched<8, f64> = dev.sample_normal_like(&(4, 6, Const));
    let target = dev.build_module::<Causal, f64>().forward(x.clone());
    let mut layer = dev.build_module::<Causal, f64>();
    let mut optimizer = new(&layer);
    let mut gradients = layer.alloc_grads();
    let mut losses = Vec::new();
    for _ in 0..40 {
        let before = parameters(&layer);
        let y = layer.forward_mut(x.trace(gradients));
        let loss = (y - target.clone()).square().mean();
        losses.push(loss.array());
        gradients = loss.backward();
        optimizer
            .update(&mut layer, &gradients)
            .expect("every parameter has a gradient");
        layer.zero_grads(&mut gradients);
        for (before, after) in before.iter().zip(parameters(&layer)) {
            let all_moved = before.values.iter().zip(&after.values).all(|(b, a)| b != a);
            assert!(
                all_moved,
                "{}: {:?}, {:?}",
                after.name, before.values, after.values
            );
        }
    }
    // The loss of a constant output is the variance of the target, the first one about twice that.
    assert!(losses[39] < losses[0] / 2.0, "{losses:?}");
}

#[test]
fn sgd_moves_every_parameter_downhill() {
    assert_learns(|layer| {
        let momentum = Some(Momentum::Nesterov(0.9));
        let config = SgdConfig {
            lr: 0.1,
            momentum,
            ..Default::default()
        };
        Sgd::new(layer, config)
    });
}

#[test]
fn adam_moves_every_parameter_downhill() {
    assert_learns(|layer| {
        Adam::new(
            layer,
            AdamConfig {
                lr: 0.02,
                ..Default::default()
            },
        )
    });
}

#[test]
fn adam_with_decoupled_decay_moves_every_parameter_downhill() {
    assert_learns(|layer| {
        let weight_decay = Some(WeightDecay::Decoupled(0.01));
        let config = AdamConfig {
            lr: 0.02,
            weight_decay,
            ..Default::default()
        };
        Adam::new(layer, config)
    });
}

#[test]
fn rmsprop_moves_every_parameter_downhill() {
    assert_learns(|layer| {
        RMSprop::new(
            layer,
            RMSpropConfig {
                lr: 0.03,
                ..Default::default()
            },
        )
    });
}

#[test]
fn a_moving_average_reaches_every_parameter() {
    let dev = Cpu::default();
    let mut average = dev.build_module::<Causal, f64>();
    let mut model = dev.build_module::<Causal, f64>();
    fill(&mut model, |_, values| {
        values.iter().map(|v| v + 1.0).collect()
    });
    let before = parameters(&average);
    average.ema(&model, 0.75);
    let triples = before
        .iter()
        .zip(parameters(&model))
        .zip(parameters(&average));
    for ((before, model), after) in triples {
        for ((b, m), a) in before.values.iter().zip(model.values).zip(after.values) {
            // Three roundings of numbers up to 2.
            assert!(
                (a - (0.75 * b + 0.25 * m)).abs() < 6.0 * f64::EPSILON,
                "{}",
                after.name
            );
        }
    }
}

#[test]
fn its_parameters_can_be_reset() {
    let mut layer = Cpu::default().build_module::<Causal, f32>();
    let built = parameters(&layer);
    fill(&mut layer, |_, values| vec![7.0; values.len()]);
    layer.reset_params();
    let reset = parameters(&layer);
    for (built, Named { name, values, .. }) in built.iter().zip(reset) {
        if name.ends_with("bias") || name.contains("norm") {
            assert_eq!(values, built.values, "{name} is constant");
        } else {
            assert!(values.iter().all(|v| v.abs() < 1.0), "{name} is drawn");
            assert_ne!(values, built.values, "{name} is drawn anew");
        }
    }
}

#[test]
fn gradients_of_all_parameters_are_allocated_and_zeroed() {
    let layer = Cpu::default().build_module::<Causal, f32>();
    let allocated = layer.alloc_grads();
    for Named { name, dims, values } in gradients(&layer, &allocated) {
        assert_eq!(values, vec![0.0; dims.iter().product()], "{name}");
    }
    let y = layer.forward(normal(1, 2, 5).traced(allocated));
    let mut computed = y.square().sum().backward();
    for Named { name, values, .. } in gradients(&layer, &computed) {
        assert!(values.iter().all(|&v| v != 0.0), "{name}");
    }
    layer.zero_grads(&mut computed);
    for Named { name, values, .. } in gradients(&layer, &computed) {
        assert!(values.iter().all(|&v| v == 0.0), "{name}");
    }
}

#[test]
fn it_converts_to_another_dtype_and_device() {
    let layer = Cpu::default().build_module::<(Causal, Linear<8, 8>), f32>();
    let double: (Causal<f64>, _) = layer.to_dtype::<f64>();
    // Every f32 is an f64.
    assert_eq!(parameters(&double), parameters(&layer));
    let moved: (Causal<f32, Cpu>, _) = layer.to_device(&Cpu::seed_from_u64(9));
    assert_eq!(parameters(&moved), parameters(&layer));
    let x = normal(1, 2, 5);
    assert_eq!(flat(&moved.forward(x.clone())), flat(&layer.forward(x)));
}

#[test]
fn a_clone_computes_the_same_and_is_trained_apart() {
    let layer = Cpu::default().build_module::<Causal, f32>();
    let mut clone = layer.clone();
    assert_eq!(parameters(&clone), parameters(&layer));
    let x = normal(1, 2, 5);
    let before = layer.forward(x.clone()).as_vec();
    assert_eq!(clone.forward(x.clone()).as_vec(), before);

    let y = clone.forward_mut(x.trace(clone.alloc_grads()));
    let gradients = y.square().mean().backward();
    Sgd::new(&clone, SgdConfig::default())
        .update(&mut clone, &gradients)
        .expect("every parameter has a gradient");
    assert_eq!(layer.forward(x.clone()).as_vec(), before);
    assert_ne!(clone.forward(x).as_vec(), before);
}

#[test]
fn it_shows_its_name_and_its_fields() {
    let shown = format!("{:?}", Cpu::default().build_module::<Causal, f32>());
    assert!(
        shown.starts_with("Causal { q_proj: Linear { weight: Tensor {"),
        "{shown}"
    );
    for field in ["k_proj: Linear {", "q_norm: Weight {", "o_proj: Linear {"] {
        assert!(shown.contains(field), "{field} in {shown}");
    }
}
