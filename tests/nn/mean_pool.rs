//! Means of sequences.

use super::*;
use attn::{
    Error,
    ops::{self, composed},
};
use support::tensors::flat;

pub(super) const M: usize = 5;

pub(super) type Sequences<E> = Tensor<(usize, usize, Const<M>), E, Cpu>;

pub(super) fn lens(lens: &[usize]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(lens.to_vec(), (lens.len(),))
}

/// The marks of the first `counts[b]` of `s` vectors.
pub(super) fn first(counts: &[usize], s: usize) -> Vec<bool> {
    let marks = counts
        .iter()
        .flat_map(|&count| (0..s).map(move |l| l < count));
    marks.collect()
}

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Sequences<E> = tensor("x", (b, s, Const));
        let means: Traced<(usize, Const<M>), E> = ops::mean_pool(x.leaky_trace());
        assert_agree!(
            format!("{b} x {s}"),
            [x],
            means,
            x.leaky_trace().mean::<_, Axis<1>>()
        );
        // None, one, .. all.
        let counts: Vec<usize> = (0..b).map(|b| (b + s) % (s + 1)).collect();
        assert_agree!(
            format!("{counts:?} of {b} x {s}"),
            [x],
            ops::mean_pool_padded(x.leaky_trace(), lens(&counts)),
            composed::mean_pool(x.leaky_trace(), &first(&counts, s)).unwrap()
        );
        // Some marks, in some sequences none.
        let marks: Vec<bool> = (0..b * s)
            .map(|i| i / s % 3 != 2 && i * i % 7 < 3)
            .collect();
        let keep: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(marks.clone(), (b, s));
        assert_agree!(
            format!("{marks:?} of {b} x {s}"),
            [x],
            ops::mean_pool_padded(x.leaky_trace(), &keep),
            composed::mean_pool(x.leaky_trace(), &marks).unwrap()
        );
    }
}

#[test]
fn mean_pool_equals_that_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn padding_is_not_read() {
    let nan = f64::NAN;
    let numbers = vec![1.0, 2.0, 3.0, 4.0, nan, nan, nan, nan, nan, nan, nan, nan];
    let x: Tensor<(usize, usize, Const<2>), f64, _> =
        Cpu::default().tensor_from_vec(numbers, (2, 3, Const));
    for y in [
        ops::mean_pool_padded(x.leaky_trace(), lens(&[2, 0])),
        composed::mean_pool(x.leaky_trace(), &first(&[2, 0], 3)).unwrap(),
    ] {
        assert_eq!(flat(&y), [2.0, 3.0, 0.0, 0.0]);
        let gradient = flat(&y.sum().backward().get(&x));
        assert_eq!(gradient[..4], [0.5; 4]);
        assert_eq!(gradient[4..], [0.0; 8]);
    }
}

#[test]
fn unbatched_input_and_views_are_accepted() {
    let columns: Tensor<Rank2<3, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, 3>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::mean_pool(permuted()),
        composed::mean_pool(permuted(), &[true; 4]).unwrap()
    );
    let row: Tensor<Rank1<3>, f64, _> = tensor("row", Default::default());
    let rows = || -> Traced<Rank2<4, 3>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "broadcast",
        [row],
        ops::mean_pool(rows()),
        row.leaky_trace()
    );
}

#[test]
fn lengths_are_checked() {
    let x: Sequences<f32> = tensor("x", (2, 3, Const));
    let error = ops::try_mean_pool_padded(x.clone(), lens(&[3, 4])).unwrap_err();
    assert!(matches!(
        &error,
        Error::LengthBeyondKeys { length: 4, keys: 3, index, .. } if index == &[1]
    ));
    let error = ops::try_mean_pool_padded(x, lens(&[3])).unwrap_err();
    assert!(matches!(error, Error::BatchMismatch { x: 2, found: 1, .. }));
}

#[test]
fn marks_are_checked() {
    let x: Sequences<f32> = tensor("x", (2, 3, Const));
    let marks = |shape: (usize, usize)| -> Tensor<_, bool, _> {
        Cpu::default().tensor_from_vec(vec![true; shape.0 * shape.1], shape)
    };
    let message = |shape| {
        let error = ops::try_mean_pool_padded(x.clone(), marks(shape)).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        message((2, 4)),
        "mean_pool: the key axis has length 3, but the entries of the key mask cover 4"
    );
    assert_eq!(
        message((1, 3)),
        "mean_pool: the batch of x is 2, that of key mask is 1"
    );
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    for (b, s) in [(2, 0), (0, 3)] {
        let x: Sequences<f64> = tensor("x", (b, s, Const));
        for y in [
            ops::mean_pool(x.leaky_trace()),
            ops::mean_pool_padded(x.leaky_trace(), lens(&vec![0; b])),
            composed::mean_pool(x.leaky_trace(), &vec![false; b * s]).unwrap(),
        ] {
            assert_eq!(flat(&y), vec![0.0; b * M]);
            backward_of_nothing(y).get(&x);
        }
    }
    let x: Sequences<f64> = tensor("x", (2, 3, Const));
    assert_eq!(operations(ops::mean_pool(x.leaky_trace())), 1);
    let y = ops::mean_pool_padded(x.leaky_trace(), lens(&[1, 2]));
    assert_eq!(operations(y), 1);
}
