//! The largest numbers of sequences.

use super::mean_pool::{M, Sequences, first, lens};
use super::*;
use attn::{
    Error,
    ops::{self, composed},
};
use support::tensors::flat;

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Sequences<E> = tensor("x", (b, s, Const));
        // No two numbers are equal: for equal ones dfdx gives each the whole gradient.
        let largest: Traced<(usize, Const<M>), E> = ops::max_pool(x.leaky_trace());
        assert_agree!(
            format!("{b} x {s}"),
            [x],
            largest,
            x.leaky_trace().max::<_, Axis<1>>()
        );
        // None, one, .. all.
        let counts: Vec<usize> = (0..b).map(|b| (b + s) % (s + 1)).collect();
        assert_agree!(
            format!("{counts:?} of {b} x {s}"),
            [x],
            ops::max_pool_padded(x.leaky_trace(), lens(&counts)),
            composed::max_pool(x.leaky_trace(), &first(&counts, s)).unwrap()
        );
        // Some marks, in some sequences none.
        let marks: Vec<bool> = (0..b * s)
            .map(|i| i / s % 3 != 2 && i * i % 7 < 3)
            .collect();
        let keep: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(marks.clone(), (b, s));
        assert_agree!(
            format!("{marks:?} of {b} x {s}"),
            [x],
            ops::max_pool_padded(x.leaky_trace(), &keep),
            composed::max_pool(x.leaky_trace(), &marks).unwrap()
        );
    }
}

#[test]
fn max_pool_equals_that_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn padding_is_not_read_and_the_first_of_equal_numbers_has_the_gradient() {
    let nan = f64::NAN;
    let numbers = vec![-1.0, 2.0, -1.0, 2.0, nan, nan, nan, nan, nan, nan, nan, nan];
    let x: Tensor<(usize, usize, Const<2>), f64, _> =
        Cpu::default().tensor_from_vec(numbers, (2, 3, Const));
    for y in [
        ops::max_pool_padded(x.leaky_trace(), lens(&[2, 0])),
        composed::max_pool(x.leaky_trace(), &first(&[2, 0], 3)).unwrap(),
    ] {
        assert_eq!(flat(&y), [-1.0, 2.0, 0.0, 0.0]);
        let gradient = flat(&y.sum().backward().get(&x));
        assert_eq!(gradient[..4], [1.0, 1.0, 0.0, 0.0]);
        assert_eq!(gradient[4..], [0.0; 8]);
    }
    for y in [
        ops::max_pool(x.leaky_trace()),
        composed::max_pool(x.leaky_trace(), &[true; 6]).unwrap(),
    ] {
        assert!(flat(&y).iter().all(|y| y.is_nan()));
        let gradient = flat(&y.sum().backward().get(&x));
        let want = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(
            gradient, want,
            "NaN is the largest, and the first one counts"
        );
    }
}

#[test]
fn unbatched_input_and_views_are_accepted() {
    let columns: Tensor<Rank2<3, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, 3>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::max_pool(permuted()),
        composed::max_pool(permuted(), &[true; 4]).unwrap()
    );
    let row: Tensor<Rank1<3>, f64, _> = tensor("row", Default::default());
    let rows = || -> Traced<Rank2<4, 3>, f64> { row.leaky_trace().broadcast() };
    assert_agree!("broadcast", [row], ops::max_pool(rows()), row.leaky_trace());
}

#[test]
fn lengths_and_marks_are_checked() {
    let x: Sequences<f32> = tensor("x", (2, 3, Const));
    let error = ops::try_max_pool_padded(x.clone(), lens(&[3, 4])).unwrap_err();
    assert!(matches!(
        &error,
        Error::LengthBeyondKeys { length: 4, keys: 3, index, .. } if index == &[1]
    ));
    let error = ops::try_max_pool_padded(x.clone(), lens(&[3])).unwrap_err();
    assert!(matches!(error, Error::BatchMismatch { x: 2, found: 1, .. }));
    let marks: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(vec![true; 8], (2, 4));
    let error = ops::try_max_pool_padded(x, marks).unwrap_err();
    assert_eq!(
        error.to_string(),
        "max_pool: the key axis has length 3, but the entries of the key mask cover 4"
    );
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    for (b, s) in [(2, 0), (0, 3)] {
        let x: Sequences<f64> = tensor("x", (b, s, Const));
        for y in [
            ops::max_pool(x.leaky_trace()),
            ops::max_pool_padded(x.leaky_trace(), lens(&vec![0; b])),
            composed::max_pool(x.leaky_trace(), &vec![false; b * s]).unwrap(),
        ] {
            assert_eq!(flat(&y), vec![0.0; b * M]);
            backward_of_nothing(y).get(&x);
        }
    }
    let x: Sequences<f64> = tensor("x", (2, 3, Const));
    assert_eq!(operations(ops::max_pool(x.leaky_trace())), 1);
    let y = ops::max_pool_padded(x.leaky_trace(), lens(&[1, 2]));
    assert_eq!(operations(y), 1);
}
