//! `masked_softmax` against `softmax` of the valid numbers alone.

use attn::{
    dfdx::prelude::*,
    ops::{masked_softmax, softmax, try_masked_softmax},
};
use support::compare::flat;

use super::tensor;

/// Asserts that each row has the softmax of its valid numbers, and 0 elsewhere; and the gradient of that.
fn assert_rows(x: &[f64], valid: impl Fn(usize, usize) -> bool, width: usize, [y, d]: [&[f64]; 2]) {
    let rows = x.chunks(width).zip(y.chunks(width).zip(d.chunks(width)));
    for (row, (x, (y, d))) in rows.enumerate() {
        let keys: Vec<usize> = (0..width).filter(|&k| valid(row, k)).collect();
        let of_keys: Tensor<(usize,), f64, _> =
            Cpu::default().tensor_from_vec(keys.iter().map(|&k| x[k]).collect(), (keys.len(),));
        let expected = softmax(of_keys.leaky_trace());
        let values = flat(&expected);
        let gradient = match keys.is_empty() {
            true => Vec::new(),
            false => flat(&expected.square().sum::<Rank0, _>().backward().get(&of_keys)),
        };
        for k in 0..width {
            let (want, want_d) = match keys.iter().position(|&key| key == k) {
                Some(at) => (values[at], gradient[at]),
                None => (0.0, 0.0),
            };
            // Sums of at most seven terms.
            assert!((y[k] - want).abs() < 1e-15, "{row}, {k}: {} {want}", y[k]);
            assert!(
                (d[k] - want_d).abs() < 1e-15,
                "{row}, {k}: {} {want_d}",
                d[k]
            );
        }
    }
}

macro_rules! check {
    ($shape:expr, $valid:expr, $is_valid:expr) => {{
        let shape = $shape;
        let x = tensor("x", shape);
        let y = masked_softmax(x.leaky_trace(), $valid);
        let values = flat(&y);
        let d = flat(&y.square().sum::<Rank0, _>().backward().get(&x));
        let width = *shape.concrete().last().unwrap();
        assert_rows(&x.as_vec(), $is_valid, width, [&values, &d]);
        // What is not valid is not read.
        let mut numbers = x.as_vec();
        for (i, number) in numbers.iter_mut().enumerate() {
            if !$is_valid(i / width, i % width) {
                *number = f64::NAN;
            }
        }
        let poisoned = Cpu::default().tensor_from_vec(numbers, shape);
        assert_eq!(flat(&masked_softmax(poisoned, $valid)), values);
    }};
}

#[test]
fn lengths_of_sequences() {
    let lens: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(vec![3, 0, 7], (3,));
    let of = [3, 0, 7];
    check!((3, 7), &lens, |row: usize, k: usize| k < of[row]);
    check!((3, 2, 7), &lens, |row: usize, k: usize| k < of[row / 2]);
    check!((3, 2, 2, 7), &lens, |row: usize, k: usize| k < of[row / 4]);
    check!((3, 2, 7), vec![3, 0, 7], |row: usize, k: usize| k < of
        [row / 2]);
}

#[test]
fn lengths_of_queries() {
    let of = [1, 2, 0, 7, 3, 4];
    let lens: Tensor<(usize, usize), usize, _> =
        Cpu::default().tensor_from_vec(of.to_vec(), (2, 3));
    check!((2, 3, 7), &lens, |row: usize, k: usize| k < of[row]);
    check!((2, 2, 3, 7), &lens, |row: usize, k: usize| {
        k < of[row / 6 * 3 + row % 3]
    });
}

#[test]
fn marks() {
    let dev = Cpu::default();
    let mark = |i: usize| i * i % 5 < 2;
    let marks = |len: usize| (0..len).map(mark).collect::<Vec<bool>>();
    let of_pairs: Tensor<(usize, usize), bool, _> = dev.tensor_from_vec(marks(21), (3, 7));
    check!((2, 3, 7), &of_pairs, |row: usize, k: usize| mark(
        row % 3 * 7 + k
    ));
    check!((2, 2, 3, 7), &of_pairs, |row: usize, k: usize| mark(
        row % 3 * 7 + k
    ));
    let of_all: Tensor<_, bool, _> = dev.tensor_from_vec(marks(42), (2, 3, 7));
    check!((2, 3, 7), &of_all, |row: usize, k: usize| mark(row * 7 + k));
    check!((2, 2, 3, 7), &of_all, |row: usize, k: usize| {
        mark((row / 6 * 3 + row % 3) * 7 + k)
    });
}

#[test]
fn mistakes_are_typed_errors() {
    let x = tensor("x", (2, 3, 7));
    let message = |lens: Vec<usize>| try_masked_softmax(x.clone(), lens).unwrap_err().to_string();
    assert_eq!(
        message(vec![1, 2, 3]),
        "masked_softmax: axis 0 of `valid lengths` has size 3, but `axis 0 of x` is 2"
    );
    assert_eq!(
        message(vec![1, 8]),
        "masked_softmax: the valid length at [1] is 8, but there are 7 keys"
    );
    let lens: Tensor<(usize, usize), usize, _> =
        Cpu::default().tensor_from_vec(vec![1, 2, 3, 4, 9, 5], (2, 3));
    assert_eq!(
        try_masked_softmax(x.clone(), &lens)
            .unwrap_err()
            .to_string(),
        "masked_softmax: the valid length at [1, 1] is 9, but there are 7 keys"
    );
}

#[test]
fn empty_tensors_are_accepted() {
    for shape in [(0, 3, 7), (2, 0, 7), (2, 3, 0)] {
        let x = tensor("x", shape);
        let y = masked_softmax(x.leaky_trace(), vec![0; shape.0]);
        assert!(flat(&y).is_empty());
    }
}
