//! Ranges of an axis, and single indices of it.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

type Three = (usize, usize, usize);

/// Sizes, and a start and a length on each axis: single indices, and whole axes.
const CASES: [(Three, [(usize, usize); 3]); 4] = [
    ((2, 3, 4), [(1, 1), (0, 2), (1, 3)]),
    ((1, 1, 1), [(0, 1), (0, 1), (0, 1)]),
    ((5, 7, 33), [(2, 3), (3, 4), (0, 33)]),
    ((3, 1, 17), [(0, 3), (0, 1), (16, 1)]),
];

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (from, [(a, of_0), (b, of_1), (c, of_2)]) in CASES {
        let x: Tensor<Three, E, _> = tensor("x", from);
        let y = || x.leaky_trace();
        macro_rules! agree_along {
            ($axis:literal, $start:ident, $to:expr) => {
                assert_agree!(
                    format!("{:?} of {from:?} from {} on", $to, $start),
                    [x],
                    ops::slice(y(), Axis::<$axis>, $start, $to),
                    composed::slice(y(), Axis::<$axis>, $start, $to).unwrap()
                );
                assert_agree!(
                    format!("index {} of axis {} of {from:?}", $start, $axis),
                    [x],
                    ops::select(y(), Axis::<$axis>, $start),
                    composed::select(y(), Axis::<$axis>, $start).unwrap()
                );
            };
        }
        agree_along!(0, a, (of_0, from.1, from.2));
        agree_along!(1, b, (from.0, of_1, from.2));
        agree_along!(2, c, (from.0, from.1, of_2));
    }
}

#[test]
fn slices_equal_those_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn the_numbers_are_those_of_the_range_and_other_gradients_are_zero() {
    let (n, m, w) = (3, 5, 2);
    let x: Tensor<Three, f64, _> = tensor("x", (n, m, w));
    let weights: Tensor<Three, f64, _> = tensor("weights", (n, 2, w));
    let y = ops::slice(x.leaky_trace(), Axis::<1>, 2, (n, 2, w));
    let numbers = flat(&x);
    let of_y = flat(&weights);
    let mut expected = Vec::new();
    let mut expected_gradient = vec![0.0; n * m * w];
    for i in 0..n {
        for j in 2..4 {
            for k in 0..w {
                let place = (i * m + j) * w + k;
                expected_gradient[place] = of_y[expected.len()];
                expected.push(numbers[place]);
            }
        }
    }
    assert_eq!(flat(&y), expected);
    let gradients = (y * weights).sum().backward();
    assert_eq!(flat(&gradients.get(&x)), expected_gradient);
}

#[test]
fn an_index_is_a_slice_without_its_axis() {
    let x: Tensor<Rank3<2, 3, 4>, f64, _> = tensor("x", Default::default());
    let last: Tensor<Rank2<2, 4>, f64, _> = ops::select(x.clone(), Axis::<1>, 2);
    let of_one: Tensor<Rank3<2, 1, 4>, f64, _> =
        ops::slice(x.clone(), Axis::<1>, 2, Default::default());
    assert_eq!(flat(&last), flat(&of_one));
    let number: Tensor<(), f64, _> = ops::select(
        ops::select(ops::select(x.clone(), Axis::<0>, 1), Axis::<0>, 2),
        Axis::<0>,
        3,
    );
    assert_eq!(number.array(), x.array()[1][2][3]);
}

#[test]
fn views_are_accepted() {
    let square: Tensor<Rank2<4, 4>, f64, _> = tensor("square", Default::default());
    let view = || -> Traced<Rank2<4, 4>, f64> { square.leaky_trace().permute() };
    let to = (Const::<2>, Const::<4>);
    assert_agree!(
        "permuted",
        [square],
        ops::slice(view(), Axis::<0>, 1, to),
        composed::slice(view(), Axis::<0>, 1, to).unwrap()
    );
    let row: Tensor<Rank1<4>, f64, _> = tensor("row", Default::default());
    let view = || -> Traced<Rank2<3, 4>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "broadcast",
        [row],
        ops::slice(view(), Axis::<1>, 1, (Const::<3>, Const::<2>)),
        composed::slice(view(), Axis::<1>, 1, (Const::<3>, Const::<2>)).unwrap()
    );
}

#[test]
fn empty_slices_have_gradients_and_the_tape_has_one_operation() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    let nothing = ops::slice(x.leaky_trace(), Axis::<1>, 3, (2, 0, 4));
    assert_eq!(flat(&backward_of_nothing(nothing).get(&x)), [0.0; 24]);
    let nothing = composed::slice(x.leaky_trace(), Axis::<1>, 3, (2, 0, 4)).unwrap();
    backward_of_nothing(nothing).get(&x);
    let empty: Tensor<Three, f64, _> = tensor("empty", (2, 3, 0));
    backward_of_nothing(ops::select(empty.leaky_trace(), Axis::<1>, 2)).get(&empty);
    assert_eq!(operations(ops::select(x.leaky_trace(), Axis::<2>, 3)), 1);
    assert_eq!(
        operations(ops::slice(x.leaky_trace(), Axis::<0>, 1, (1, 3, 4))),
        1
    );
}

#[test]
#[should_panic(expected = "slice: 2 from 2 on of an axis of size 3")]
fn ranges_end_within_the_axis() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    ops::slice(x, Axis::<1>, 2, (2, 2, 4));
}

#[test]
#[should_panic(expected = "a part of axis 1 of [2, 3, 4] is not [1, 2, 4]")]
fn other_axes_keep_their_sizes() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    ops::slice(x, Axis::<1>, 0, (1, 2, 4));
}

#[test]
#[should_panic(expected = "select: 1 from 3 on of an axis of size 3")]
fn an_index_is_within_the_axis() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    ops::select(x, Axis::<1>, 3);
}
