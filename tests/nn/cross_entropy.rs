//! The loss of a classifier.

use super::*;
use attn::{
    Error,
    ops::{self, CrossEntropyOptions, composed},
};
use support::tensors::flat;

const IGNORED: usize = 7777;

/// Targets, of which every third is ignored.
fn targets<S: Shape>(shape: S, classes: usize, ignore: bool) -> Tensor<S, usize, Cpu> {
    let target = |i| {
        if ignore && i % 3 == 0 {
            IGNORED
        } else {
            (i * 5 + 1) % classes
        }
    };
    let targets = (0..shape.num_elements()).map(target).collect();
    Cpu::default().tensor_from_vec(targets, shape)
}

fn options() -> impl Iterator<Item = CrossEntropyOptions> {
    let smoothings = [0.0, 0.1, 1.0].into_iter();
    smoothings.flat_map(|label_smoothing| {
        [None, Some(IGNORED)].map(|ignore_index| CrossEntropyOptions {
            ignore_index,
            label_smoothing,
        })
    })
}

/// By the definition, in `f64`.
fn naive(logits: &[f64], targets: &[usize], options: CrossEntropyOptions) -> f64 {
    let classes = logits.len() / targets.len();
    let mut sum = 0.0;
    let mut counted = 0;
    for (row, &target) in logits.chunks(classes).zip(targets) {
        if Some(target) == options.ignore_index {
            continue;
        }
        let total: f64 = row.iter().map(|z| z.exp()).sum();
        for (class, z) in row.iter().enumerate() {
            let share = options.label_smoothing / classes as f64;
            let hit = if class == target {
                1.0 - options.label_smoothing
            } else {
                0.0
            };
            sum -= (share + hit) * (z.exp() / total).ln();
        }
        counted += 1;
    }
    sum / f64::from(counted)
}

fn agrees<E: Element, const C: usize>()
where
    Cpu: Backend<E>,
{
    for ((b, s), options) in SIZES
        .into_iter()
        .flat_map(|size| options().map(move |o| (size, o)))
    {
        if b * s == 1 {
            continue;
        }
        let logits: Tensor<(usize, usize, Const<C>), E, _> = tensor("logits", (b, s, Const));
        let targets = targets((b, s), C, options.ignore_index.is_some());
        let what = format!("{b} x {s} x {C} with {options:?}");
        let loss = ops::cross_entropy(logits.leaky_trace(), &targets, options);
        let expected = naive(&flat(&logits), &targets.as_vec(), options);
        compare::assert_close(&what, &flat(&loss), &[expected], tolerance::<E>());
        let ids = targets.as_vec();
        assert_agree!(
            &what,
            [logits],
            loss,
            composed::cross_entropy(logits.leaky_trace(), &ids, options).unwrap()
        );
    }
}

#[test]
fn loss_is_minus_the_logarithm_of_the_probability() {
    agrees::<f32, 1>();
    agrees::<f32, 65>();
    agrees::<f64, 2>();
    agrees::<f64, 17>();
}

#[test]
fn single_rows_and_runtime_class_counts_are_accepted() {
    let row: Tensor<Rank1<5>, f64, _> = tensor("row", Default::default());
    let target: Tensor<Rank0, usize, _> = Cpu::default().tensor(3);
    let fixed = ops::cross_entropy(row.clone(), &target, Default::default()).array();
    let expected = naive(&flat(&row), &[3], Default::default());
    assert!((fixed - expected).abs() < tolerance::<f64>());
    let row: Tensor<(usize,), f64, _> = row.reshape_like(&(5,));
    let counted = ops::cross_entropy(row, &target, Default::default()).array();
    assert_eq!(counted, fixed);
}

#[test]
fn ignored_rows_may_hold_anything() {
    let mut numbers = scattered("logits", 12);
    numbers[4..8].fill(f64::NAN);
    let logits: Tensor<Rank2<3, 4>, f64, _> =
        Cpu::default().tensor_from_vec(numbers, Default::default());
    let targets: Tensor<Rank1<3>, usize, _> = Cpu::default().tensor([0, IGNORED, 3]);
    let options = CrossEntropyOptions {
        ignore_index: Some(IGNORED),
        label_smoothing: 0.1,
    };
    let loss = ops::cross_entropy(logits.leaky_trace(), &targets, options);
    assert!(loss.array().is_finite());
    let gradient = loss.backward().get(&logits).array();
    assert!(gradient.as_flattened().iter().all(|g| g.is_finite()));
    assert_eq!(gradient[1], [0.0; 4]);
}

#[test]
fn the_mean_of_nothing_is_nan_with_a_gradient_of_zero() {
    let options = CrossEntropyOptions {
        ignore_index: Some(IGNORED),
        ..Default::default()
    };
    let logits: Tensor<Rank2<2, 3>, f64, _> = tensor("logits", Default::default());
    let targets: Tensor<Rank1<2>, usize, _> = Cpu::default().tensor([IGNORED; 2]);
    let loss = ops::cross_entropy(logits.leaky_trace(), &targets, options);
    assert!(loss.array().is_nan());
    assert_eq!(loss.backward().get(&logits).array(), [[0.0; 3]; 2]);
    let none: Tensor<(usize, Const<3>), f64, _> = tensor("logits", (0, Const));
    let targets: Tensor<(usize,), usize, _> = Cpu::default().zeros_like(&(0,));
    let loss = ops::cross_entropy(none.leaky_trace(), &targets, options);
    assert!(loss.array().is_nan());
    loss.backward().get(&none);
}

#[test]
fn a_class_that_is_ruled_out_harms_no_other() {
    let logits: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([0.0, -f32::INFINITY, 0.0]);
    let target: Tensor<Rank0, usize, _> = Cpu::default().tensor(2);
    let loss = ops::cross_entropy(logits.leaky_trace(), &target, Default::default());
    assert!((loss.array() - 2f32.ln()).abs() < 1e-6);
    let gradient = loss.backward().get(&logits).array();
    assert!((gradient[0] - 0.5).abs() < 1e-6 && gradient[1] == 0.0);
}

#[test]
fn an_unknown_class_is_an_error_with_its_place() {
    let logits: Tensor<Rank3<2, 2, 3>, f32, _> = tensor("logits", Default::default());
    let targets: Tensor<Rank2<2, 2>, usize, _> = Cpu::default().tensor([[0, 1], [3, 2]]);
    let error = ops::try_cross_entropy(logits, &targets, Default::default());
    let error = error.map(drop).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { index: 3, .. }));
    assert_eq!(
        error.to_string(),
        "cross_entropy: the target at [1, 0] is 3, but there are 3: 0 to 2"
    );
}

#[test]
fn gradients_flow_through_views_and_scale_with_the_loss() {
    let columns: Tensor<Rank2<6, 4>, f64, _> = tensor("columns", Default::default());
    let targets: Tensor<Rank1<4>, usize, _> = Cpu::default().tensor([5, 0, 5, 1]);
    let permuted = || -> Traced<Rank2<4, 6>, f64> { columns.leaky_trace().permute() };
    let ids = targets.as_vec();
    assert_agree!(
        "permuted",
        [columns],
        ops::cross_entropy(permuted(), &targets, Default::default()) * 3.0,
        composed::cross_entropy(permuted(), &ids, Default::default()).unwrap() * 3.0
    );
    let y = ops::cross_entropy(
        permuted().split_tape().0.leaky_traced(),
        &targets,
        Default::default(),
    );
    assert_eq!(operations(y), 2); // The copy of the view is the other.
}

/// Added one after the other in `f32`, 2²⁵ small losses stop growing.
#[test]
fn many_rows_lose_no_digits() {
    let logits: Tensor<(usize, Const<2>), f32, _> = Cpu::default().zeros_like(&(1 << 20, Const));
    let targets: Tensor<(usize,), usize, _> = Cpu::default().zeros_like(&(1 << 20,));
    let loss = ops::cross_entropy(logits, &targets, Default::default()).array();
    assert!((loss - 2f32.ln()).abs() < 1e-6, "{loss}");
}
