//! Gradients against differences.

use crate::wrong::{Plain, gain};
use attn::{
    attention,
    dfdx::prelude::*,
    model, nn,
    ops::{CrossEntropyOptions, cross_entropy},
    testing::{
        GradientCheck, GradientCheckError, GradientReport, assert_gradients, gradient_check,
    },
};
use std::cell::Cell;

attention! {
    struct Across<heads = 2, d_model = 6, d_context = 4, mask = padding>;
}

model! {
    struct Tagger<vocab = 7, d_model = 6>;

    fn forward(ids: ids[batch, seq], lens: lens[batch], shift: [batch, d_model]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d_model>(ids) + shift;
        let x = x + attention::<2, mask = padding>(layer_norm(x), padding = lens);
        linear::<vocab>(feed_forward::<9>(x))
    }
}

fn dev() -> Cpu {
    Cpu::seed_from_u64(3)
}

fn wrong<Dev: std::fmt::Debug>(
    result: Result<GradientReport, GradientCheckError<Dev>>,
) -> GradientReport {
    match result {
        Err(GradientCheckError::Wrong(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_gradients_of_a_layer_with_two_inputs_are_right() {
    let layer = dev().build_module::<Across, f64>();
    let x: Plain<Rank3<2, 3, 6>> = dev().sample_normal();
    let context: Plain<Rank3<2, 4, 4>> = dev().sample_normal();
    let lens: Tensor<Rank1<2>, usize, _> = dev().tensor([4, 2]);
    let report = gradient_check(&layer, (x, context, lens), |layer, (x, context, lens)| {
        layer
            .forward((x.leaky_traced(), context, lens))
            .square()
            .sum()
    });
    let report = report.unwrap();
    let names: Vec<_> = report.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names[..3], ["input 0", "input 1", "q_proj.weight"]);
    assert_eq!(names.len(), 2 + 8);
    assert_eq!(report.tensors[1].dims, [2, 4, 4]);
    assert_eq!(report.tensors[1].checked, 32);
    assert!(report.is_right() && report.worst().is_some());
    let text = report.to_string();
    assert!(text.contains("k_proj.weight: 24 compared"), "{text}");
}

#[test]
fn the_gradients_of_a_model_are_right() {
    let net = dev().build_module::<Tagger, f64>();
    let ids: Tensor<(usize, usize), usize, _> =
        dev().tensor_from_vec(vec![0, 3, 6, 1, 1, 5], (2, 3));
    let lens: Tensor<(usize,), usize, _> = dev().tensor_from_vec(vec![3, 2], (2,));
    let shift: Plain<(usize, Const<6>)> = dev().sample_normal_like(&(2, Const));
    assert_gradients(&net, (ids, lens, shift), |net, (ids, lens, shift)| {
        let logits = net.forward((ids.clone().leaky_traced(), lens, shift));
        cross_entropy(logits, &ids, CrossEntropyOptions::default())
    });
}

#[test]
fn a_factor_in_a_derivative_is_found_and_named() {
    let model = dev().build_module::<(nn::Linear<3, 5>, nn::RmsNorm<5>), f64>();
    let x: Plain<Rank2<4, 3>> = dev().sample_normal();
    let check = |mistake: f64| {
        gradient_check(&model, x.clone(), move |(linear, norm), x| {
            let y = linear.forward(x.leaky_traced());
            gain(y, &norm.weight, move |_| mistake).tanh().mean()
        })
    };
    assert!(check(1.0).is_ok());
    let report = wrong(check(2.0));
    let names: Vec<_> = report
        .wrong()
        .map(|(tensor, _)| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["1.weight"], "the other gradients are right");
    let (_, at) = report.worst().unwrap();
    assert!((at.gradient / at.slope - 2.0).abs() < 1e-6);
    let text = report.to_string();
    assert!(
        text.starts_with("the gradient of `1.weight` at ["),
        "{text}"
    );
    assert!(text.trim_end().ends_with(": 2 times as much"), "{text}");
    // A hundred thousandth is more than the tolerance, a ten millionth is less.
    assert!(check(1.0 + 1e-5).is_err() && check(1.0 + 1e-7).is_ok());
}

/// The second term of dfdx's derivative, `x / 2 · 2 / √π · exp(-x² / 2)`, lacks the factor `1 / √2`.
#[test]
fn the_derivative_of_the_accurate_gelu_of_dfdx_is_wrong() {
    let x: Plain<Rank1<5>> = dev().tensor([-2.0, -0.5, 0.25, 1.0, 3.0]);
    let theirs = gradient_check(&(), x.clone(), |_, x| {
        x.leaky_traced().accurate_gelu().sum()
    });
    let report = wrong(theirs);
    let (_, at) = report.worst().unwrap();
    let [x_at] = at.index.as_deref().unwrap() else {
        panic!("{at:?}")
    };
    let x_at = x.as_vec()[*x_at];
    let term = x_at / std::f64::consts::PI.sqrt() * (-x_at * x_at / 2.0).exp();
    // The slope is right up to the tolerance of the check.
    assert!((at.gradient - at.slope - (1.0 - 0.5_f64.sqrt()) * term).abs() < at.allowed);
    assert_gradients(&nn::Gelu, x, |gelu, x| gelu.forward(x.leaky_traced()).sum());
}

/// The gradient is compared with its own size, whatever that is, as long as the loss is of that size, too.
#[test]
fn mistakes_in_small_and_large_losses_are_found() {
    let model = dev().build_module::<nn::RmsNorm<5>, f64>();
    let x: Plain<Rank2<4, 5>> = dev().sample_normal();
    for scale in [1e-12, 1.0, 1e12] {
        let check = |mistake: f64| {
            gradient_check(&model, x.clone(), move |norm, x| {
                gain(x.leaky_traced(), &norm.weight, move |_| mistake).sum() * scale
            })
        };
        assert!(check(1.0).is_ok(), "{scale}");
        assert_eq!(wrong(check(1.001)).wrong().count(), 1, "{scale}");
    }
}

#[test]
fn one_wrong_element_of_a_large_tensor_is_found_along_a_direction() {
    let model = dev().build_module::<nn::RmsNorm<1000>, f64>();
    let x: Plain<Rank2<1, 1000>> = dev().sample_normal();
    let settings = GradientCheck {
        samples: 10,
        seed: 1,
        ..Default::default()
    };
    let check = |settings: GradientCheck, at: usize| {
        settings.run(&model, x.clone(), move |norm, x| {
            let mistake = move |i| if i == at { 2.0 } else { 1.0 };
            gain(x.leaky_traced(), &norm.weight, mistake).sum()
        })
    };
    let right = check(settings, 1000).unwrap();
    assert_eq!(
        right,
        check(settings, 1000).unwrap(),
        "a seed chooses the same elements"
    );
    let checked: Vec<_> = right.tensors.iter().map(|t| t.checked).collect();
    assert_eq!(checked, [11, 11]);
    for at in [3, 500, 999] {
        let report = wrong(check(settings, at));
        let (tensor, worst) = report.worst().unwrap();
        assert_eq!(tensor.name, "weight");
        // The last element is one of those that are compared themselves.
        let expected = if at == 999 { Some(vec![999]) } else { None };
        assert_eq!(worst.index, expected);
    }
    let all = GradientCheck {
        samples: 1000,
        ..settings
    };
    let report = wrong(check(all, 500));
    assert_eq!(report.worst().unwrap().1.index, Some(vec![500]));
}

#[test]
fn losses_that_have_no_slope_are_errors() {
    let norm = dev().build_module::<nn::RmsNorm<5>, f64>();
    let x: Plain<Rank2<4, 5>> = dev().sample_normal();
    let calls = Cell::new(0.0);
    let random = gradient_check(&norm, x.clone(), |norm, x| {
        calls.set(calls.get() + 1.0);
        norm.forward(x.leaky_traced()).sum() * calls.get()
    });
    let error = random.unwrap_err();
    assert!(matches!(error, GradientCheckError::NotDeterministic { .. }));
    assert!(error.to_string().contains("must not be random"), "{error}");
    let infinite = gradient_check(&norm, x.clone(), |norm, x| {
        norm.forward(x.leaky_traced()).sum() * f64::INFINITY
    });
    assert!(matches!(
        infinite,
        Err(GradientCheckError::NotFinite { .. })
    ));
    let ids: Tensor<Rank1<2>, usize, _> = dev().tensor([0, 1]);
    let nothing = gradient_check(&(), ids, |(), _| dev().zeros::<Rank0>().leaky_traced());
    assert!(matches!(nothing, Err(GradientCheckError::NothingToCheck)));
}

/// A permuted input has its gradient in another order in memory, and two inputs that are one tensor have one gradient.
#[test]
fn inputs_may_be_views_and_stand_twice() {
    let x: Plain<Rank2<3, 2>> = dev().sample_normal();
    let swapped: Plain<Rank2<2, 3>> = x.clone().permute();
    let loss = |_: &(), (a, b): (Plain<Rank2<2, 3>>, Plain<Rank2<2, 3>>)| {
        (a.leaky_traced() * b.leaky_traced().square()).sum()
    };
    assert_gradients(&(), (swapped.clone(), swapped.clone()), loss);
    // The square of the second one is not on a tape.
    let untraced = gradient_check(&(), (swapped.clone(), swapped), |_, (a, b)| {
        (a.leaky_traced() * b.square()).sum()
    });
    let text = wrong(untraced).to_string();
    assert!(text.starts_with("the gradient of `input 1` at ["), "{text}");
    assert!(text.contains(": nothing on the tape reads it"), "{text}");
}

#[test]
fn the_model_is_left_as_it_is() {
    let norm = dev().build_module::<nn::RmsNorm<5>, f64>();
    let before = norm.weight.array();
    let x: Plain<Rank2<4, 5>> = dev().sample_normal();
    assert_gradients(&norm, x, |norm, x| {
        norm.forward(x.leaky_traced()).square().sum()
    });
    assert_eq!(norm.weight.array(), before);
}

#[test]
#[should_panic(expected = "the gradient of `weight` at [")]
fn an_assertion_panics_with_the_report() {
    let norm = dev().build_module::<nn::RmsNorm<5>, f64>();
    let x: Plain<Rank2<4, 5>> = dev().sample_normal();
    assert_gradients(&norm, x, |norm, x| {
        gain(x.leaky_traced(), &norm.weight, |_| 0.5).square().sum()
    });
}
