//! Reductions of any axis, and the softmax along any axis.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

/// Calls a macro for each reduction, with its name.
macro_rules! for_each_reduction {
    ($check:ident!($($argument:tt)*)) => {
        $check!(sum, $($argument)*);
        $check!(mean, $($argument)*);
        $check!(max, $($argument)*);
        $check!(min, $($argument)*);
        $check!(variance, $($argument)*);
        $check!(logsumexp, $($argument)*);
    };
}

/// Checks that both forms of an operation along an axis agree.
macro_rules! assert_forms_agree {
    ($operation:ident, $x:ident, $view:expr, $axis:expr) => {
        assert_agree!(
            format!(
                "{} along {:?} of {:?}",
                stringify!($operation),
                $axis,
                $x.shape()
            ),
            [$x],
            ops::$operation($view, $axis),
            composed::$operation($view, $axis).unwrap()
        )
    };
}

type Cube<E> = Tensor<(usize, usize, Const<5>), E, Cpu>;

fn forms_agree<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Cube<E> = tensor("x", (b, s, Const));
        for_each_reduction!(assert_forms_agree!(x, x.leaky_trace(), Axis::<0>));
        for_each_reduction!(assert_forms_agree!(x, x.leaky_trace(), Axis::<1>));
        for_each_reduction!(assert_forms_agree!(x, x.leaky_trace(), Axis::<2>));
        assert_forms_agree!(softmax_along, x, x.leaky_trace(), Axis::<0>);
        assert_forms_agree!(softmax_along, x, x.leaky_trace(), Axis::<1>);
        assert_forms_agree!(softmax_along, x, x.leaky_trace(), Axis::<2>);
    }
}

#[test]
fn both_forms_agree_along_every_axis() {
    for_both!(forms_agree);
}

#[test]
fn results_equal_those_of_dfdx() {
    let x: Tensor<(usize, Const<3>, usize), f64, _> = tensor("x", (4, Const, 7));
    // No two numbers are equal: for equal ones dfdx gives each the whole gradient.
    macro_rules! assert_equals_dfdx {
        ($operation:ident, $of_dfdx:ident) => {
            let found: Traced<(usize, usize), f64> = ops::$operation(x.leaky_trace(), Axis::<1>);
            let expected = x.leaky_trace().$of_dfdx::<_, Axis<1>>();
            assert_agree!(stringify!($operation), [x], found, expected);
        };
    }
    assert_equals_dfdx!(sum, sum);
    assert_equals_dfdx!(mean, mean);
    assert_equals_dfdx!(max, max);
    assert_equals_dfdx!(min, min);
    assert_equals_dfdx!(variance, var);
    assert_equals_dfdx!(logsumexp, logsumexp);
    let found = ops::softmax_along(x.leaky_trace(), Axis::<1>);
    assert_agree!("softmax", [x], found, x.leaky_trace().softmax::<Axis<1>>());
}

#[test]
fn the_softmax_along_the_last_axis_is_the_softmax() {
    let x: Tensor<Rank3<2, 3, 5>, f32, _> = tensor("x", Default::default());
    let along = ops::softmax_along(x.clone(), Axis::<2>);
    assert_eq!(flat(&along), flat(&ops::softmax(x)));
}

#[test]
fn the_only_axis_is_reduced_to_one_number() {
    let x: Tensor<Rank1<4>, f64, _> = Cpu::default().tensor([1.0, 2.0, 4.0, 1.0]);
    macro_rules! assert_number {
        ($($operation:ident: $number:expr, $gradient:expr;)*) => {$(
            let y: Traced<Rank0, f64> = ops::$operation(x.leaky_trace(), Axis::<0>);
            assert_eq!(y.array(), $number, stringify!($operation));
            assert_eq!(y.backward().get(&x).array(), $gradient, stringify!($operation));
            assert_forms_agree!($operation, x, x.leaky_trace(), Axis::<0>);
        )*};
    }
    assert_number! {
        sum: 8.0, [1.0; 4];
        mean: 2.0, [0.25; 4];
        max: 4.0, [0.0, 0.0, 1.0, 0.0];
        min: 1.0, [1.0, 0.0, 0.0, 0.0];
        variance: 1.5, [-0.5, 0.0, 1.0, -0.5];
    }
    let y = ops::logsumexp(x.leaky_trace(), Axis::<0>);
    let powers = [1.0, 2.0, 4.0, 1.0].map(f64::exp);
    let sum: f64 = powers.iter().sum();
    let found = [vec![y.array()], flat(&y.backward().get(&x))].concat();
    let want = [vec![sum.ln()], powers.map(|power| power / sum).to_vec()].concat();
    // A few roundings of 4.
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-14;
    assert!(found.iter().zip(&want).all(is_close), "{found:?}");
    assert_forms_agree!(logsumexp, x, x.leaky_trace(), Axis::<0>);
}

#[test]
fn numbers_that_are_not_finite_have_the_same_results_and_gradients_in_both_forms() {
    let inf = f64::INFINITY;
    let nan = f64::NAN;
    let x: Tensor<Rank2<5, 2>, f64, _> =
        Cpu::default().tensor([[0.0, -inf], [-inf; 2], [0.0, inf], [nan, 1.0], [2.0, 2.0]]);
    macro_rules! assert_equal_forms {
        ($operation:ident) => {
            let [fused, composed] = [
                ops::$operation(x.leaky_trace(), Axis::<1>),
                composed::$operation(x.leaky_trace(), Axis::<1>).unwrap(),
            ]
            .map(|y| [flat(&y), flat(&y.sum().backward().get(&x))].concat());
            let is_same = |(a, b): (&f64, &f64)| {
                // Exponentials differ in the last bits.
                a == b || (a - b).abs() < 1e-14 || (a.is_nan() && b.is_nan())
            };
            assert!(
                fused.iter().zip(&composed).all(is_same),
                "{}: {fused:?} and {composed:?}",
                stringify!($operation)
            );
        };
    }
    assert_equal_forms!(sum);
    assert_equal_forms!(mean);
    assert_equal_forms!(max);
    assert_equal_forms!(min);
    assert_equal_forms!(logsumexp);
    let y = ops::logsumexp(x.leaky_trace(), Axis::<1>);
    assert_eq!(flat(&y)[..3], [0.0, -inf, inf]);
    let gradient = flat(&y.sum().backward().get(&x));
    assert_eq!(gradient[..5], [1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn inputs_may_be_views() {
    let columns: Tensor<Rank2<5, 3>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<3, 5>, f64> { columns.leaky_trace().permute() };
    for_each_reduction!(assert_forms_agree!(columns, permuted(), Axis::<0>));
    for_each_reduction!(assert_forms_agree!(columns, permuted(), Axis::<1>));
    assert_forms_agree!(softmax_along, columns, permuted(), Axis::<0>);
    let row: Tensor<Rank1<5>, f64, _> = tensor("row", Default::default());
    let rows = || -> Traced<Rank2<3, 5>, f64> { row.leaky_trace().broadcast() };
    for_each_reduction!(assert_forms_agree!(row, rows(), Axis::<0>));
    for_each_reduction!(assert_forms_agree!(row, rows(), Axis::<1>));
    assert_forms_agree!(softmax_along, row, rows(), Axis::<0>);
}

#[test]
fn the_reduction_of_an_empty_axis_is_its_neutral_element_or_nan() {
    let empty: Tensor<(usize, usize), f64, _> = tensor("x", (2, 0));
    let without_columns: Tensor<(usize, usize), f64, _> = tensor("x", (0, 3));
    macro_rules! assert_of_nothing {
        ($($operation:ident: $expected:expr;)*) => {$(
            for y in [
                ops::$operation(empty.leaky_trace(), Axis::<1>),
                composed::$operation(empty.leaky_trace(), Axis::<1>).unwrap(),
            ] {
                let expected = [$expected; 2];
                // NaN is no number to compare with.
                assert_eq!(format!("{:?}", flat(&y)), format!("{expected:?}"));
                backward_of_nothing(y).get(&empty);
            }
            for y in [
                ops::$operation(without_columns.leaky_trace(), Axis::<1>),
                composed::$operation(without_columns.leaky_trace(), Axis::<1>).unwrap(),
            ] {
                assert!(flat(&y).is_empty());
                backward_of_nothing(y).get(&without_columns);
            }
        )*};
    }
    assert_of_nothing! {
        sum: 0.0;
        mean: f64::NAN;
        max: f64::NEG_INFINITY;
        min: f64::INFINITY;
        variance: f64::NAN;
        logsumexp: f64::NEG_INFINITY;
    }
    for x in [empty, without_columns] {
        backward_of_nothing(ops::softmax_along(x.leaky_trace(), Axis::<0>)).get(&x);
        let y = composed::softmax_along(x.leaky_trace(), Axis::<0>).unwrap();
        backward_of_nothing(y).get(&x);
    }
}

#[test]
fn the_tape_has_one_operation() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    macro_rules! assert_one_operation {
        ($operation:ident $(,)?) => {
            let y = ops::$operation(x.leaky_trace(), Axis::<0>);
            assert_eq!(operations(y), 1, stringify!($operation));
        };
    }
    for_each_reduction!(assert_one_operation!());
    assert_one_operation!(softmax_along);
}
