//! The softmax of the last axis.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize), E, _> = tensor("x", (b, s));
        assert_agree!(
            format!("{b} x {s}"),
            [x],
            ops::softmax(x.leaky_trace()),
            composed::softmax(x.leaky_trace()).unwrap()
        );
    }
}

#[test]
fn softmax_equals_that_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn inputs_have_one_to_four_axes_and_may_be_views() {
    let row: Tensor<Rank1<5>, f64, _> = tensor("row", Default::default());
    let expected = flat(&ops::softmax(row.clone()));
    let four: Tensor<(usize, Const<1>, usize, Const<5>), f64, _> = row
        .clone()
        .broadcast_like::<_, Axes3<0, 1, 2>>(&(2, Const, 3, Const));
    assert_eq!(flat(&ops::softmax(four)), expected.repeat(6));
    let columns: Tensor<Rank2<5, 3>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<3, 5>, f64> { columns.leaky_trace().permute() };
    let rows = || -> Traced<Rank2<3, 5>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "permuted",
        [columns],
        ops::softmax(permuted()),
        composed::softmax(permuted()).unwrap()
    );
    assert_agree!(
        "broadcast",
        [row],
        ops::softmax(rows()),
        composed::softmax(rows()).unwrap()
    );
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    for shape in [(3, 0), (0, 3)] {
        let x: Tensor<(usize, usize), f64, _> = tensor("x", shape);
        backward_of_nothing(ops::softmax(x.leaky_trace())).get(&x);
        backward_of_nothing(composed::softmax(x.leaky_trace()).unwrap()).get(&x);
    }
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    assert_eq!(operations(ops::softmax(x.leaky_trace())), 1);
}
