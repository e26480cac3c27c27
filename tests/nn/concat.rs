//! Concatenation of vectors.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

fn agrees<E: Element, const A: usize, const B: usize, const C: usize>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize, Const<A>), E, _> = tensor("x", (b, s, Const));
        let y: Tensor<(usize, usize, Const<B>), E, _> = tensor("y", (b, s, Const));
        let found: Traced<(usize, usize, Const<C>), E> =
            ops::concat(x.leaky_trace(), y.leaky_trace());
        assert_agree!(
            format!("{b} x {s} x ({A} + {B})"),
            [x, y],
            found,
            composed::concat(x.leaky_trace(), y.leaky_trace()).unwrap()
        );
    }
}

#[test]
fn concat_equals_that_of_dfdx() {
    agrees::<f32, 1, 1, 2>();
    agrees::<f64, 3, 33, 36>();
    agrees::<f64, 0, 2, 2>();
    agrees::<f64, 2, 0, 2>();
}

#[test]
fn rows_stand_in_order() {
    let x: Tensor<Rank2<2, 3>, f64, _> = tensor("x", Default::default());
    let y: Tensor<Rank2<2, 1>, f64, _> = tensor("y", Default::default());
    let z: Tensor<Rank2<2, 4>, f64, _> = ops::concat(x.clone(), y.clone());
    let [x0, x1] = x.array();
    let [y0, y1] = y.array();
    assert_eq!(flat(&z), [&x0[..], &y0, &x1, &y1].concat());
}

#[test]
fn views_and_equal_operands_are_accepted() {
    let square: Tensor<Rank2<4, 4>, f64, _> = tensor("square", Default::default());
    let transposed = || -> Traced<Rank2<4, 4>, f64> { square.leaky_trace().permute() };
    let found: Traced<Rank2<4, 8>, f64> = ops::concat(square.leaky_trace(), transposed());
    let expected = composed::concat(square.leaky_trace(), transposed()).unwrap();
    assert_agree!("a matrix and its transpose", [square], found, expected);
    let z: Traced<Rank2<4, 8>, f64> = ops::concat(square.leaky_trace(), square.leaky_trace());
    assert_eq!(z.sum().backward().get(&square).array(), [[2.0; 4]; 4]);
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    let x: Tensor<(usize, Const<2>), f64, _> = tensor("x", (0, Const));
    let z: Traced<(usize, Const<4>), f64> = ops::concat(x.leaky_trace(), x.leaky_trace());
    backward_of_nothing(z).get(&x);
    let none: Tensor<Rank2<3, 0>, f64, _> = Cpu::default().zeros();
    let z: Traced<Rank2<3, 0>, f64> = ops::concat(none.leaky_trace(), none.leaky_trace());
    backward_of_nothing(z).get(&none);
    let x: Tensor<(usize, Const<2>), f64, _> = tensor("x", (3, Const));
    let z: Traced<(usize, Const<4>), f64> = ops::concat(x.leaky_trace(), x.leaky_trace());
    assert_eq!(operations(z), 1);
}

#[test]
#[should_panic(expected = "2 and 2 numbers side by side")]
fn widths_that_do_not_add_up_panic() {
    let x: Tensor<Rank1<2>, f64, _> = tensor("x", Default::default());
    let _: Tensor<Rank1<5>, f64, _> = ops::concat(x.clone(), x);
}

type Three = (usize, usize, usize);

fn agrees_along<E: Element>()
where
    Cpu: Backend<E>,
{
    for ((a, b, c), more) in [((2, 3, 4), 1), ((1, 1, 1), 1), ((5, 7, 33), 2)] {
        let x: Tensor<Three, E, _> = tensor("x", (a, b, c));
        macro_rules! agree_along {
            ($axis:literal, $y:expr, $to:expr) => {
                let y: Tensor<Three, E, _> = tensor("y", $y);
                assert_agree!(
                    format!("{:?} and {:?} along axis {}", (a, b, c), $y, $axis),
                    [x, y],
                    ops::concat_along(x.leaky_trace(), y.leaky_trace(), Axis::<$axis>, $to),
                    composed::concat_along(x.leaky_trace(), y.leaky_trace(), Axis::<$axis>, $to)
                        .unwrap()
                );
            };
        }
        agree_along!(0, (more, b, c), (a + more, b, c));
        agree_along!(1, (a, more, c), (a, b + more, c));
        agree_along!(2, (a, b, more), (a, b, c + more));
    }
}

#[test]
fn concat_along_an_axis_equals_that_of_dfdx() {
    for_both!(agrees_along);
}

#[test]
fn empty_operands_along_an_axis_have_gradients() {
    for ((a, b, c), more) in [
        ((2, 3, 4), 0),
        ((2, 0, 4), 3),
        ((0, 2, 3), 1),
        ((2, 2, 0), 1),
    ] {
        let x: Tensor<Three, f64, _> = tensor("x", (a, b, c));
        let y: Tensor<Three, f64, _> = tensor("y", (a, more, c));
        let to = (a, b + more, c);
        let z = ops::concat_along(x.leaky_trace(), y.leaky_trace(), Axis::<1>, to);
        let expected = composed::concat_along(x.clone(), y.clone(), Axis::<1>, to).unwrap();
        assert_eq!(flat(&z), flat(&expected), "{:?} and {more}", (a, b, c));
        let gradients = backward_of_nothing(z);
        gradients.get(&x);
        gradients.get(&y);
    }
}

#[test]
fn slices_along_the_axis_are_the_operands() {
    let x: Tensor<Three, f64, _> = tensor("x", (2, 3, 4));
    let y: Tensor<Three, f64, _> = tensor("y", (2, 2, 4));
    let z = ops::concat_along(x.clone(), y.clone(), Axis::<1>, (2, 5, 4));
    let first = ops::slice(z.clone(), Axis::<1>, 0, (2, 3, 4));
    let second = ops::slice(z, Axis::<1>, 3, (2, 2, 4));
    assert_eq!(flat(&first), flat(&x));
    assert_eq!(flat(&second), flat(&y));
    let twice = ops::concat_along(x.leaky_trace(), x.leaky_trace(), Axis::<0>, (4, 3, 4));
    let gradients = twice.sum().backward();
    assert_eq!(flat(&gradients.get(&x)), [2.0; 24]);
}

#[test]
#[should_panic(expected = "[2, 3] and [2, 4] along axis 0 are not [4, 3]")]
fn other_axes_have_the_same_sizes() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (2, 3));
    let y: Tensor<(usize, usize), f64, _> = tensor("y", (2, 4));
    ops::concat_along(x, y, Axis::<0>, (4, 3));
}
