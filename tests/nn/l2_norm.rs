//! Vectors of length 1.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize, Const<33>), E, _> = tensor("x", (b, s, Const));
        // One epsilon is shorter than all vectors, the other is longer.
        for epsilon in [1e-12, 100.0] {
            assert_agree!(
                format!("{b} x {s}, {epsilon}"),
                [x],
                ops::l2_norm(x.leaky_trace(), epsilon),
                composed::l2_norm(x.leaky_trace(), epsilon).unwrap()
            );
        }
    }
}

#[test]
fn l2_norm_equals_dfdx_operations() {
    for_both!(agrees);
}

#[test]
fn l2_norm_equals_its_definition() {
    let x: Tensor<Rank2<5, 13>, f64, _> = tensor("x", Default::default());
    for epsilon in [1e-12, 2.0] {
        let expected = flat(&x);
        let expected = expected.chunks(13).flat_map(|row| {
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter().map(move |x| x / length.max(epsilon))
        });
        let expected: Vec<f64> = expected.collect();
        let y = ops::l2_norm(x.clone(), epsilon);
        compare::assert_close("l2_norm", &flat(&y), &expected, tolerance::<f64>());
    }
}

#[test]
fn views_are_accepted() {
    let columns: Tensor<Rank2<9, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, 9>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::l2_norm(permuted(), 1e-12),
        composed::l2_norm(permuted(), 1e-12).unwrap()
    );
    let row: Tensor<Rank1<9>, f64, _> = tensor("row", Default::default());
    let rows = || -> Traced<Rank2<4, 9>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "broadcast",
        [row],
        ops::l2_norm(rows(), 1e-12),
        composed::l2_norm(rows(), 1e-12).unwrap()
    );
}

#[test]
fn zeros_stay_with_a_finite_gradient_and_nan_stays_in_its_row() {
    let nan = f64::NAN;
    let x: Tensor<Rank2<3, 2>, f64, _> =
        Cpu::default().tensor([[0.0, 0.0], [3.0, -4.0], [nan, 1.0]]);
    for y in [
        ops::l2_norm(x.leaky_trace(), 0.5),
        composed::l2_norm(x.leaky_trace(), 0.5).unwrap(),
    ] {
        let values = y.array();
        assert_eq!(values[0], [0.0; 2]);
        compare::assert_close("3, -4", &values[1], &[0.6, -0.8], tolerance::<f64>());
        assert!(values[2].iter().all(|y| y.is_nan()));
        let gradient = y.sum().backward().get(&x).array();
        assert_eq!(gradient[0], [2.0; 2], "1 / epsilon");
        assert!(gradient[1].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    let none: Tensor<Rank2<2, 0>, f64, _> = Cpu::default().zeros();
    for y in [
        ops::l2_norm(none.leaky_trace(), 1e-12),
        composed::l2_norm(none.leaky_trace(), 1e-12).unwrap(),
    ] {
        backward_of_nothing(y).get(&none);
    }
    let x: Tensor<(usize, Const<3>), f64, _> = tensor("x", (0, Const));
    backward_of_nothing(ops::l2_norm(x.leaky_trace(), 1e-12)).get(&x);
    let x: Tensor<Rank1<3>, f64, _> = tensor("x", Default::default());
    assert_eq!(operations(ops::l2_norm(x.leaky_trace(), 1e-12)), 1);
}

#[test]
#[should_panic = "l2_norm: epsilon is 0"]
fn epsilon_is_positive() {
    let x: Tensor<Rank1<3>, f64, Cpu> = tensor("x", Default::default());
    ops::l2_norm(x, 0.0);
}
