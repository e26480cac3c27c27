//! Broadcasting of axes of size 1, and along new axes.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

type Three = (usize, usize, usize);

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (from, to) in [
        ((1, 3, 4), (2, 3, 4)),
        ((2, 1, 4), (2, 5, 4)),
        ((2, 3, 1), (2, 3, 7)),
        ((1, 3, 1), (5, 3, 2)),
        ((1, 1, 4), (2, 9, 4)),
        ((1, 1, 1), (3, 2, 5)),
        ((2, 3, 4), (2, 3, 4)),
        ((1, 1, 1), (1, 1, 1)),
    ] {
        let x: Tensor<Three, E, _> = tensor("x", from);
        assert_agree!(
            format!("{from:?} to {to:?}"),
            [x],
            ops::expand(x.leaky_trace(), to),
            composed::expand(x.leaky_trace(), to).unwrap()
        );
    }
}

#[test]
fn expand_equals_that_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn numbers_are_repeated_and_their_gradients_summed() {
    let x: Tensor<(usize, Const<1>, usize), f64, _> = tensor("x", (2, Const, 3));
    let y: Traced<(usize, Const<4>, Const<3>), f64> =
        ops::expand(x.leaky_trace(), (2, Const, Const));
    let theirs: Tensor<Three, f64, _> = flat_rows(&x).broadcast_like::<_, Axis<1>>(&(2, 4, 3));
    assert_eq!(flat(&y), flat(&theirs));
    assert_eq!(flat(&y.sum().backward().get(&x)), [4.0; 6]);
}

/// `[2, 1, 3]` as `[2, 3]`.
fn flat_rows(x: &Tensor<(usize, Const<1>, usize), f64, Cpu>) -> Tensor<(usize, usize), f64, Cpu> {
    Cpu::default().tensor_from_vec(flat(x), (2, 3))
}

#[test]
fn views_share_their_gradient() {
    let columns: Tensor<(usize, Const<1>), f64, _> = tensor("columns", (3, Const));
    let permuted = || -> Traced<(Const<1>, usize), f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::expand(permuted(), (4, 3)),
        composed::expand(permuted(), (4, 3)).unwrap()
    );
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    for (from, to) in [
        ((1, 3, 2), (0, 3, 2)),
        ((1, 0, 1), (2, 0, 3)),
        ((0, 1, 2), (0, 4, 2)),
    ] {
        let x: Tensor<Three, f64, _> = tensor("x", from);
        let gradients = backward_of_nothing(ops::expand(x.leaky_trace(), to));
        assert_eq!(
            flat(&gradients.get(&x)),
            vec![0.0; from.0 * from.1 * from.2]
        );
        backward_of_nothing(composed::expand(x.leaky_trace(), to).unwrap()).get(&x);
    }
    let x: Tensor<Three, f64, _> = tensor("x", (1, 3, 1));
    assert_eq!(operations(ops::expand(x.leaky_trace(), (2, 3, 4))), 1);
}

#[test]
#[should_panic(expected = "axis 1 of [1, 3, 2] in [2, 4, 2]")]
fn other_axes_do_not_grow() {
    let x: Tensor<Three, f64, _> = tensor("x", (1, 3, 2));
    ops::expand(x, (2, 4, 2));
}

/// Along the first axis, the last one, one in the middle, two of them, and all.
fn broadcasts_agree<E: Element>()
where
    Cpu: Backend<E>,
{
    macro_rules! agrees {
        ($($axes:expr, $from:expr, $to:expr;)*) => {$(
            let x: Tensor<_, E, _> = tensor("x", $from);
            assert_agree!(
                format!("{:?} to {:?}", $from, $to),
                [x],
                ops::broadcast(x.leaky_trace(), $axes, $to),
                composed::broadcast(x.leaky_trace(), $axes, $to).unwrap()
            );
        )*};
    }
    agrees! {
        Axis::<0>, (3, 4), (2, 3, 4);
        Axis::<1>, (2, 4), (2, 5, 4);
        Axis::<2>, (2, 3), (2, 3, 7);
        Axes2::<0, 1>, (4,), (2, 3, 4);
        Axes2::<0, 2>, (3,), (2, 3, 4);
        Axes3::<0, 1, 2>, (), (2, 3, 4);
        Axis::<0>, (3, 4), (1, 3, 4);
    }
}

#[test]
fn broadcasts_along_new_axes_agree_in_both_forms() {
    for_both!(broadcasts_agree);
}

#[test]
fn numbers_along_new_axes_are_repeated_and_their_gradients_summed() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (2, 3));
    let y = ops::broadcast(x.leaky_trace(), Axis::<1>, (2, 4, 3));
    let theirs: Tensor<Three, f64, _> = x.clone().broadcast_like::<_, Axis<1>>(&(2, 4, 3));
    assert_eq!(flat(&y), flat(&theirs));
    assert_eq!(flat(&y.sum().backward().get(&x)), [4.0; 6]);
}
