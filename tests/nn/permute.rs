//! Axes in another order, and other shapes of the same numbers.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

type Three = (usize, usize, usize);
type Four = (usize, usize, usize, usize);

const SIZES: [Four; 5] = [
    (2, 3, 4, 5),
    (1, 1, 1, 1),
    (3, 1, 17, 2),
    (1, 33, 1, 9),
    (5, 2, 3, 70),
];

macro_rules! agree_by {
    ($x:ident, $($axes:expr),*) => {
        $(
            assert_agree!(
                format!("{:?} by {:?}", $x.shape(), $axes),
                [$x],
                ops::permute($x.leaky_trace(), $axes),
                composed::permute($x.leaky_trace(), $axes).unwrap()
            );
        )*
    };
}

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (a, b, c, d) in SIZES {
        let two: Tensor<(usize, usize), E, _> = tensor("two", (a * b, c * d));
        agree_by!(two, Axes2::<1, 0>);
        let three: Tensor<Three, E, _> = tensor("three", (a, b, c * d));
        agree_by!(three, Axes3::<1, 0, 2>, Axes3::<2, 0, 1>, Axes3::<2, 1, 0>);
        let four: Tensor<Four, E, _> = tensor("four", (a, b, c, d));
        agree_by!(four, Axes4::<0, 2, 1, 3>, Axes4::<3, 0, 2, 1>);
    }
}

#[test]
fn permutations_equal_those_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn numbers_and_gradients_are_in_the_new_order() {
    let (n, m, w) = (3, 5, 2);
    let x: Tensor<Three, f64, _> = tensor("x", (n, m, w));
    let weights: Tensor<Three, f64, _> = tensor("weights", (w, n, m));
    let y: Traced<Three, f64> = ops::permute(x.leaky_trace(), Axes3::<2, 0, 1>);
    let mut expected = Vec::new();
    let mut expected_gradient = vec![0.0; n * m * w];
    for k in 0..w {
        for i in 0..n {
            for j in 0..m {
                let place = (i * m + j) * w + k;
                expected_gradient[place] = flat(&weights)[expected.len()];
                expected.push(flat(&x)[place]);
            }
        }
    }
    assert_eq!(flat(&y), expected);
    let gradients = (y * weights).sum().backward();
    assert_eq!(flat(&gradients.get(&x)), expected_gradient);
}

#[test]
fn the_result_is_no_view() {
    let x: Tensor<Rank2<2, 3>, f64, _> = tensor("x", Default::default());
    let y: Tensor<Rank2<3, 2>, f64, _> = ops::permute(x.clone(), Axes2::<1, 0>);
    let mut numbers = [0.0; 6];
    // dfdx copies in the order of the memory.
    y.copy_into(&mut numbers);
    assert_eq!(numbers.as_slice(), flat(&y));
    assert_ne!(numbers.as_slice(), flat(&x));
}

#[test]
fn views_are_accepted_and_the_tape_has_one_operation() {
    let row: Tensor<Rank1<4>, f64, _> = tensor("row", Default::default());
    let view = || -> Traced<Rank2<3, 4>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "broadcast",
        [row],
        ops::permute::<_, Rank2<4, 3>, _, _, _, _>(view(), Axes2::<1, 0>),
        composed::permute(view(), Axes2::<1, 0>).unwrap()
    );
    let square: Tensor<Rank2<4, 4>, f64, _> = tensor("square", Default::default());
    let view: Traced<Rank2<4, 4>, f64> = square.leaky_trace().permute();
    let back: Traced<Rank2<4, 4>, f64> = ops::permute(view, Axes2::<1, 0>);
    assert_eq!(back.array(), square.array());
    let y: Traced<Rank2<4, 4>, f64> = ops::permute(square.leaky_trace(), Axes2::<1, 0>);
    assert_eq!(operations(y), 1);
    let empty: Tensor<Three, f64, _> = tensor("empty", (2, 0, 3));
    let y: Traced<Three, f64> = ops::permute(empty.leaky_trace(), Axes3::<2, 1, 0>);
    backward_of_nothing(y).get(&empty);
}

#[test]
fn reshape_keeps_the_order_of_numbers_and_gradients() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    let weights: Tensor<(usize, Const<2>, Const<2>), f64, _> = tensor("w", (6, Const, Const));
    let y = ops::reshape(x.leaky_trace(), (6, Const::<2>, Const::<2>));
    assert_eq!(flat(&y), flat(&x));
    let gradients = (y * weights.clone()).sum().backward();
    assert_eq!(flat(&gradients.get(&x)), flat(&weights));
    let view: Traced<(usize, usize), f64> =
        ops::reshape(x.leaky_trace(), (2, 12)).permute::<_, Axes2<1, 0>>();
    let y = ops::reshape(view, (3, 4, 2));
    let expected: Tensor<Three, f64, _> = ops::permute(x, Axes3::<1, 2, 0>);
    assert_eq!(flat(&y), flat(&expected));
    let empty: Tensor<Three, f64, _> = tensor("empty", (2, 0, 3));
    backward_of_nothing(ops::reshape(empty.leaky_trace(), (0,))).get(&empty);
}

#[test]
#[should_panic(expected = "the numbers of elements of [2, 3] and [7]")]
fn reshape_keeps_the_number_of_elements() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (2, 3));
    ops::reshape(x, (7,));
}
