//! `linear_cross_entropy` as a function.

use super::*;
use attn::Error;
use attn::ops::{
    CrossEntropyOptions, linear_cross_entropy, linear_cross_entropy_per_target,
    try_linear_cross_entropy,
};
use support::close::{Tolerance, assert_close};
use support::compare::flat;

type Layer<const I: usize, const O: usize> = (
    Tensor<Rank2<O, I>, f64, Cpu>,
    Option<Tensor<Rank1<O>, f64, Cpu>>,
);

fn layer<const I: usize, const O: usize>(biased: bool) -> Layer<I, O> {
    let weight = tensor("weight", Default::default());
    (weight, biased.then(|| tensor("bias", Default::default())))
}

/// The loss of each row, by its definition.
fn by_hand<const I: usize, const O: usize>(
    x: &[f64],
    (weight, bias): &Layer<I, O>,
    targets: &[usize],
    options: CrossEntropyOptions,
) -> Vec<f64> {
    let (weight, bias) = (weight.as_vec(), bias.as_ref().map(Tensor::as_vec));
    let losses = targets.iter().enumerate().map(|(row, &target)| {
        if Some(target) == options.ignore_index {
            return 0.0;
        }
        let logit = |class: usize| {
            let products = (0..I).map(|i| x[row * I + i] * weight[class * I + i]);
            products.sum::<f64>() + bias.as_ref().map_or(0.0, |bias| bias[class])
        };
        let sum: f64 = (0..O).map(|class| logit(class).exp()).sum();
        let nats = |class| sum.ln() - logit(class);
        let all: f64 = (0..O).map(nats).sum();
        let smoothing = options.label_smoothing;
        (1.0 - smoothing) * nats(target) + smoothing * all / O as f64
    });
    losses.collect()
}

fn check<const I: usize, const O: usize>(rows: usize, biased: bool, label_smoothing: f64) {
    let layer = layer::<I, O>(biased);
    let targets: Vec<usize> = (0..rows).map(|row| row * 5 % (O + 1)).collect();
    let options = CrossEntropyOptions {
        ignore_index: Some(O),
        label_smoothing,
    };
    let x: Tensor<(usize, Const<I>), f64, Cpu> = tensor("x", (rows, Const));
    let ids = Cpu::default().tensor_from_vec(targets.clone(), (rows,));
    let (weight, bias) = (&layer.0, layer.1.as_ref());
    let found = linear_cross_entropy_per_target(x.clone(), weight, bias, &ids, options);
    let numbers = flat(&x);
    let want = by_hand(&numbers, &layer, &targets, options);
    let what = format!("{rows} rows of {O} classes");
    // Sums of exponentials of sums of a few products.
    assert_close(&what, &flat(&found), &want, Tolerance::OfLargest(1e-13));
    let mean = linear_cross_entropy(x.leaky_trace(), weight, bias, &ids, options);
    let counted = targets.iter().filter(|target| **target != O).count();
    let of_counted = want.iter().sum::<f64>() / counted as f64;
    match counted {
        0 => assert!(mean.array().is_nan()),
        _ => assert!((mean.array() - of_counted).abs() < 1e-12, "{what}"),
    }
    let gradients = mean.backward();
    if counted == 0 {
        let d = gradients.get(weight).as_vec();
        return assert!(d.iter().all(|d| *d == 0.0), "{what}");
    }
    let mean_of = |x: &[f64], layer: &Layer<I, O>| {
        by_hand(x, layer, &targets, options).iter().sum::<f64>() / counted as f64
    };
    let d_x = gradients.get(&x).as_vec();
    support::differences::assert_gradient_along_some(&what, &numbers, &d_x, |x| mean_of(x, &layer));
    let moved =
        |numbers: &[f64]| Cpu::default().tensor_from_vec(numbers.to_vec(), Default::default());
    let d_weight = gradients.get(weight).as_vec();
    support::differences::assert_gradient_along_some(&what, &weight.as_vec(), &d_weight, |w| {
        mean_of(&numbers, &(moved(w), layer.1.clone()))
    });
    if let Some(bias) = bias {
        let d_bias = gradients.get(bias).as_vec();
        let moved = |b: &[f64]| Cpu::default().tensor_from_vec(b.to_vec(), Default::default());
        support::differences::assert_gradient_along_some(&what, &bias.as_vec(), &d_bias, |b| {
            mean_of(&numbers, &(layer.0.clone(), Some(moved(b))))
        });
    }
}

#[test]
fn losses_and_gradients_are_those_of_the_definition() {
    for biased in [false, true] {
        check::<3, 1>(4, biased, 0.0);
        check::<3, 7>(0, biased, 0.0);
        check::<1, 7>(1, biased, 0.3);
        check::<4, 33>(9, biased, 0.1);
    }
}

#[test]
fn several_blocks_of_rows_and_classes() {
    check::<2, 4099>(290, true, 0.1);
}

/// Axes in front, a view as the input, and the input as the weight.
#[test]
fn inputs_may_be_views() {
    let dev = Cpu::default();
    let x: Tensor<Rank2<5, 3>, f64, Cpu> = tensor("x", Default::default());
    let targets: Tensor<Rank2<2, 5>, usize, Cpu> = dev.tensor([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]);
    let wide: Tensor<Rank3<2, 5, 3>, f64, Cpu, OwnedTape<f64, Cpu>> = x.leaky_trace().broadcast();
    let options = CrossEntropyOptions::default();
    let loss = linear_cross_entropy(wide, &x, None, &targets, options);
    let layer = (x.clone(), None);
    let of = |numbers: &[f64], layer: &Layer<3, 5>| {
        let all = by_hand(&numbers.repeat(2), layer, &targets.as_vec(), options);
        all.iter().sum::<f64>() / 10.0
    };
    assert!((loss.array() - of(&x.as_vec(), &layer)).abs() < 1e-12);
    let d = loss.backward().get(&x).as_vec();
    support::differences::assert_gradient("x", &x.as_vec(), &d, |x| {
        of(
            x,
            &(dev.tensor_from_vec(x.to_vec(), Default::default()), None),
        )
    });
}

#[test]
fn a_target_that_is_no_class_is_an_error_with_its_place() {
    let dev = Cpu::default();
    let x: Tensor<Rank2<3, 2>, f64, Cpu> = tensor("x", Default::default());
    let (weight, bias) = layer::<2, 4>(true);
    let targets: Tensor<Rank1<3>, usize, Cpu> = dev.tensor([0, 4, 1]);
    let options = CrossEntropyOptions::default();
    let error = try_linear_cross_entropy(x, &weight, bias.as_ref(), &targets, options).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }));
    assert_eq!(
        error.to_string(),
        "linear_cross_entropy: the target at [1] is 4, but there are 4: 0 to 3"
    );
}

#[test]
#[should_panic(expected = "the label smoothing is 2")]
fn a_share_is_at_most_1() {
    let x: Tensor<Rank2<3, 2>, f64, Cpu> = tensor("x", Default::default());
    let targets: Tensor<Rank1<3>, usize, Cpu> = Cpu::default().zeros();
    let options = CrossEntropyOptions {
        label_smoothing: 2.0,
        ..Default::default()
    };
    linear_cross_entropy(x, &layer::<2, 4>(false).0, None, &targets, options);
}

/// The upstream gradient of the mean, which is computed for 1, scales all gradients.
#[test]
fn an_upstream_gradient_scales_the_gradients() {
    let x: Tensor<(usize, Const<2>), f64, Cpu> = tensor("x", (300, Const));
    let (weight, bias) = layer::<2, 4099>(true);
    let targets = ids((300,), 4099);
    let loss = || {
        let options = CrossEntropyOptions::default();
        linear_cross_entropy(x.leaky_trace(), &weight, bias.as_ref(), &targets, options)
    };
    let one = loss().backward().get(&weight).as_vec();
    let other = (loss() * -2.5).backward().get(&weight).as_vec();
    let want: Vec<f64> = one.iter().map(|d| -2.5 * d).collect();
    assert_close("weight", &other, &want, Tolerance::OfLargest(1e-15));
}
