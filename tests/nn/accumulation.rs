//! Gradients of several batches for one step.

use super::*;
use attn::{
    nn::{Embedding, LayerNorm, Linear},
    train::{
        AdamW, AdamWConfig, CrossEntropyOptions, UpdateError, clip_grad_norm, cross_entropy,
        scale_grads,
    },
};
use std::ops::Range;
use support::tensors::{Named, gradients as read, parameters};

type Model = (Embedding<11, 6>, LayerNorm<6>, Linear<6, 5>);
type Built = (
    Embedding<11, 6, f64, Cpu>,
    LayerNorm<6, f64, Cpu>,
    Linear<6, 5, f64, Cpu>,
);

const EXAMPLES: usize = 12;
const IGNORED: usize = 99;

/// The class of an example; every third is ignored, from the second on.
fn target(example: usize, ignoring: bool) -> usize {
    let ignored = ignoring && example % 3 == 1;
    if ignored {
        IGNORED
    } else {
        example * example % 5
    }
}

/// The mean loss over some examples, times `weight`, added to the gradients so far.
fn backward(
    model: &mut Built,
    examples: Range<usize>,
    ignoring: bool,
    weight: f64,
    gradients: Gradients<f64, Cpu>,
) -> Gradients<f64, Cpu> {
    let dev = Cpu::default();
    let len = (examples.len(),);
    let ids = dev.tensor_from_vec(examples.clone().map(|i| (7 * i + 2) % 11).collect(), len);
    let targets = dev.tensor_from_vec(examples.map(|i| target(i, ignoring)).collect(), len);
    let options = CrossEntropyOptions {
        ignore_index: Some(IGNORED),
        label_smoothing: 0.1,
    };
    let logits = model.forward_mut(ids.traced(gradients));
    (cross_entropy(logits, &targets, options) * weight).backward()
}

/// Three steps, each on all examples in batches of these sizes. Returns the gradients of the last one.
///
/// `weight` is the weight of a batch, from its examples.
fn train(
    batches: &[usize],
    ignoring: bool,
    weight: impl Fn(Range<usize>) -> f64,
) -> [Vec<Named>; 2] {
    let mut model = Cpu::seed_from_u64(3).build_module::<Model, f64>();
    let mut optimizer = AdamW::new(AdamWConfig {
        lr: 0.1,
        epsilon: 1e-3,
        ..Default::default()
    });
    let mut gradients = model.alloc_grads();
    let mut last = Vec::new();
    for _ in 0..3 {
        model.zero_grads(&mut gradients);
        let mut start = 0;
        let mut all = 0.0;
        for len in batches {
            let batch = start..start + len;
            let counts = weight(batch.clone());
            gradients = backward(&mut model, batch, ignoring, counts, gradients);
            (start, all) = (start + len, all + counts);
        }
        assert_eq!(start, EXAMPLES);
        scale_grads(&model, &mut gradients, 1.0 / all).unwrap();
        let norm = clip_grad_norm(&model, &mut gradients, 0.1).unwrap();
        assert!(norm > 0.1, "nothing to clip: {norm}");
        last = read(&model, &gradients);
        optimizer.update(&mut model, &mut gradients).unwrap();
    }
    [parameters(&model), last]
}

#[track_caller]
fn assert_same_steps(found: [Vec<Named>; 2], expected: [Vec<Named>; 2]) {
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        // Gradients are sums of 12 terms below 1 in another order: at most 12 ε. A step divides them by at least the ε of the
        // optimizer, 1e-3, and is a tenth of that: 3 steps differ by 3 * 0.1 * 12 ε / 1e-3 = 8e-13.
        compare::assert_close(&found.name, &found.values, &expected.values, 8e-13);
    }
}

#[test]
fn small_batches_make_the_step_of_a_large_one() {
    let expected = train(&[12], false, |_| 1.0);
    for batches in [&[6, 6][..], &[4, 4, 4], &[1; 12]] {
        assert_same_steps(train(batches, false, |_| 1.0), expected.clone());
    }
}

#[test]
fn batches_of_several_sizes_count_as_many_targets_as_they_have() {
    let counted = |batch: Range<usize>| {
        let counted = batch.filter(|&example| target(example, true) != IGNORED);
        counted.count() as f64
    };
    let expected = train(&[12], true, counted);
    assert_same_steps(train(&[1, 6, 5], true, counted), expected.clone());
    // Without weights, small batches count too much.
    let [_, unweighted] = train(&[1, 6, 5], true, |_| 1.0);
    assert!(expected[1] != unweighted && unweighted[0].values != expected[1][0].values);
}

#[test]
fn a_shared_gradient_is_scaled_once() {
    let block = Linear::<4, 4, f64, Cpu>::build(&Cpu::default());
    let tied = (block.clone(), block.clone());
    let x: Tensor<Rank2<3, 4>, f64, _> = tensor("x", Default::default());
    let mut gradients = tied.forward(x.leaky_trace()).square().sum().backward();
    let before = gradients.get(&block.weight).as_vec();
    scale_grads(&tied, &mut gradients, 0.25).unwrap();
    let expected: Vec<f64> = before.iter().map(|g| 0.25 * g).collect();
    assert_eq!(gradients.get(&block.weight).as_vec(), expected);
}

#[test]
fn a_parameter_without_a_gradient_is_named() {
    let model = Cpu::default().build_module::<(Linear<3, 5>, Linear<5, 2>), f32>();
    let x: Tensor<Rank1<3>, f32, _> = tensor("x", Default::default());
    let mut gradients = model.0.forward(x.leaky_trace()).sum().backward();
    let before = gradients.get(&model.0.weight).array();
    let error = scale_grads(&model, &mut gradients, 2.0).unwrap_err();
    assert!(matches!(error, UpdateError::NoGradient { names } if names == ["1.weight", "1.bias"]));
    assert_eq!(gradients.get(&model.0.weight).array(), before);
}
