//! Losses of classifiers.

use super::claim::{agree, tolerance};
use super::*;
use attn::ops::{CrossEntropyOptions, cross_entropy, cross_entropy_per_target};
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::losses!(agree);

model! {
    /// A function for training beside one for use.
    struct Classifier<d = 4, classes = 3>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, classes] { linear::<classes>(x) }

    fn loss(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = 7, label_smoothing = 0.1>(forward(x), targets)
    }

    fn losses(x: [batch, seq, d], targets: ids[batch, seq]) -> [batch, seq] {
        cross_entropy::<ignore_index = 7, reduction = none>(forward(x), targets)
    }
}

type Inputs = (
    Tensor<(usize, usize, Const<4>), f64, Cpu>,
    Tensor<(usize, usize), usize, Cpu>,
);

fn inputs(targets: &[usize]) -> Inputs {
    let x = tensor("x", (2, targets.len() / 2, Const));
    let shape = (2, targets.len() / 2);
    (x, Cpu::default().tensor_from_vec(targets.to_vec(), shape))
}

#[test]
fn the_loss_of_a_model_is_that_of_its_logits() {
    let model = Cpu::default().build_module::<Classifier, f64>();
    let (x, targets) = inputs(&[0, 2, 7, 1, 7, 0]);
    let logits = model.forward(x.leaky_trace());
    let options = CrossEntropyOptions {
        ignore_index: Some(7),
        label_smoothing: 0.1,
    };
    let want = cross_entropy(logits, &targets, options);
    let found = model.loss((x.leaky_trace(), targets.clone()));
    assert_eq!(found.array(), want.array());
    let (found, want) = (found.backward(), want.backward());
    let gradients = [&found, &want].map(|of| of.get(&model.linear.weight).as_vec());
    assert_eq!(gradients[0], gradients[1]);

    let each = CrossEntropyOptions {
        label_smoothing: 0.0,
        ..options
    };
    let want = cross_entropy_per_target(model.forward(x.clone()), &targets, each).as_vec();
    let found = model.losses((x.clone(), targets.clone())).as_vec();
    assert_eq!(found, want);
    assert_eq!((found[2], found[4]), (0.0, 0.0));
    let composed = model.losses_composed((x, targets)).as_vec();
    for (found, composed) in found.iter().zip(composed) {
        assert!(
            (found - composed).abs() < 1e-15,
            "{found} is not {composed}"
        );
    }
}

/// As in PyTorch.
#[test]
fn without_a_target_the_mean_is_nan_and_has_no_gradient() {
    let model = Cpu::default().build_module::<Classifier, f64>();
    for targets in [vec![7; 4], vec![]] {
        let (x, targets) = inputs(&targets);
        let loss = model.loss((x.leaky_trace(), targets));
        assert!(loss.array().is_nan());
        let gradient = loss.backward().get(&model.linear.weight).as_vec();
        assert!(gradient.iter().all(|x| *x == 0.0), "{gradient:?}");
    }
}

#[test]
fn a_target_that_is_no_class_is_an_error_with_its_place() {
    let model = Cpu::default().build_module::<Classifier, f64>();
    let (x, targets) = inputs(&[0, 7, 1, 3]);
    let error = model.try_loss((x.clone(), targets.clone())).unwrap_err();
    let composed = model.try_loss_composed((x, targets)).unwrap_err();
    for error in [error, composed] {
        let message = error.to_string();
        assert!(
            message.contains("target") && message.contains('3'),
            "{message}"
        );
    }
}
