//! dfdx's optimizers and its other ways to change parameters reach every parameter of a declared layer.

use attn::attention;
use dfdx::{
    optim::{
        Adam, AdamConfig, Momentum, Optimizer, RMSprop, RMSpropConfig, Sgd, SgdConfig, WeightDecay,
    },
    prelude::*,
};
use support::tensors::{Named, fill, gradients, parameters};

attention! {
    // The rotation makes the bias of the keys matter: without positions a softmax cancels it.
    struct Causal<heads = 4, kv_heads = 2, d_model = 8, mask = causal, position = rope, qk_norm = rms>;
}

/// Trains a layer with an optimizer to imitate another one. `f64`, so that no step is lost to rounding.
fn assert_learns<O: Optimizer<Causal<f64>, Cpu, f64>>(new: impl FnOnce(&Causal<f64>) -> O) {
    let dev = Cpu::seed_from_u64(3);
    let x: Tensor<Rank3<4, 6, 8>, f64, _> = dev.sample_normal();
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
    // The layer can represent the target. These 40 steps reduce the loss to between 0.06 and 0.4 of the first one. With a wrong
    // gradient it would stay or grow.
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
fn parameters_can_be_reset() {
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
    let x: Tensor<Rank3<2, 5, 8>, f32, _> = Cpu::default().sample_normal();
    let y = layer.forward(x.traced(allocated));
    let mut computed = y.square().sum().backward();
    for Named { name, values, .. } in gradients(&layer, &computed) {
        assert!(values.iter().all(|&v| v != 0.0), "{name}");
    }
    layer.zero_grads(&mut computed);
    for Named { name, values, .. } in gradients(&layer, &computed) {
        assert!(values.iter().all(|&v| v == 0.0), "{name}");
    }
}
