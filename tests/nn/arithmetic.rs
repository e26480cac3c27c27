//! Sums, differences, products and multiples.

use super::*;
use attn::{
    nn::{Gelu, Residual},
    ops::{self, composed},
};
use support::tensors::flat;

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize), E, _> = tensor("x", (b, s));
        let y: Tensor<(usize, usize), E, _> = tensor("y", (b, s));
        let traced = || (x.leaky_trace(), y.leaky_trace());
        macro_rules! of_two {
            ($($name:ident)*) => {$({
                let (x1, y1) = traced();
                let (x2, y2) = traced();
                let composed = composed::$name(x2, y2).unwrap();
                let what = format!("{} of {b} x {s}", stringify!($name));
                assert_agree!(what, [x, y], ops::$name(x1, y1), composed);
            })*};
        }
        of_two!(add sub mul);
        macro_rules! by_a_number {
            ($($name:ident)*) => {$({
                let composed = composed::$name(x.leaky_trace(), -1.7).unwrap();
                let what = format!("{} of {b} x {s}", stringify!($name));
                assert_agree!(what, [x], ops::$name(x.leaky_trace(), -1.7), composed);
            })*};
        }
        by_a_number!(scale shift);
    }
}

#[test]
fn operations_equal_those_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn views_and_equal_operands_are_accepted() {
    let square: Tensor<Rank2<4, 4>, f64, _> = tensor("square", Default::default());
    let row: Tensor<Rank1<4>, f64, _> = tensor("row", Default::default());
    let transposed = || -> Traced<Rank2<4, 4>, f64> { square.leaky_trace().permute() };
    let rows = || -> Traced<Rank2<4, 4>, f64> { row.leaky_trace().broadcast::<_, Axis<0>>() };
    assert_agree!(
        "views",
        [square, row],
        ops::add(transposed(), rows()),
        composed::add(transposed(), rows()).unwrap()
    );
    let y = ops::add(square.leaky_trace(), square.leaky_trace());
    assert_eq!(y.sum().backward().get(&square).array(), [[2.0; 4]; 4]);
    let y = ops::sub(square.leaky_trace(), square.leaky_trace());
    assert_eq!(flat(&y), [0.0; 16]);
    assert_eq!(y.sum().backward().get(&square).array(), [[0.0; 4]; 4]);
    let y = ops::mul(square.leaky_trace(), square.leaky_trace());
    let twice: Vec<f64> = flat(&square).iter().map(|x| 2.0 * x).collect();
    assert_eq!(flat(&y.sum().backward().get(&square)), twice);
    let y = composed::mul(square.leaky_trace(), square.leaky_trace()).unwrap();
    assert_eq!(flat(&y.sum().backward().get(&square)), twice);
    // A matrix and its transpose share a gradient.
    let y = ops::add(square.leaky_trace(), transposed());
    assert_eq!(y.sum().backward().get(&square).array(), [[2.0; 4]; 4]);
}

#[test]
fn residual_adds_the_input_of_a_layer() {
    let x: Tensor<Rank2<3, 4>, f64, _> = tensor("x", Default::default());
    let expected = Gelu.forward(x.leaky_trace()) + x.clone();
    let expected = backpropagate(expected).input("x", &x).parameters(&());
    let mut layer = Residual(Gelu);
    for y in [
        layer.forward(x.leaky_trace()),
        layer.forward_mut(x.leaky_trace()),
    ] {
        let found = backpropagate(y).input("x", &x).parameters(&());
        assert_same("residual", &found, &expected, tolerance::<f64>());
    }
    // dfdx's residual cannot do that.
    let y = Residual(()).forward(x.leaky_trace());
    assert_eq!(flat(&y.sum().backward().get(&x)), [2.0; 12]);
}

#[test]
fn empty_tensors_are_accepted_and_the_tape_has_one_operation() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 0));
    for f in [ops::add, ops::sub, ops::mul] {
        backward_of_nothing(f(x.leaky_trace(), x.leaky_trace())).get(&x);
    }
    for f in [ops::scale, ops::shift] {
        backward_of_nothing(f(x.leaky_trace(), 2.0)).get(&x);
    }
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    for f in [ops::add, ops::sub, ops::mul] {
        assert_eq!(operations(f(x.leaky_trace(), x.leaky_trace())), 1);
    }
    for f in [ops::scale, ops::shift] {
        assert_eq!(operations(f(x.leaky_trace(), 2.0)), 1);
    }
}

#[test]
fn a_multiple_of_zero_keeps_its_sign() {
    let x: Tensor<Rank1<2>, f64, _> = Cpu::default().tensor([0.0, -0.0]);
    let signs = ops::scale(x, 3.0).array().map(f64::is_sign_negative);
    assert_eq!(signs, [false, true]);
}

#[test]
#[should_panic(expected = "the shapes of a sum")]
fn sizes_that_differ_panic() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    let y: Tensor<(usize, usize), f64, _> = tensor("y", (2, 3));
    ops::add(x, y);
}

#[test]
#[should_panic(expected = "the shapes of a product")]
fn sizes_of_a_product_that_differ_panic() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    let y: Tensor<(usize, usize), f64, _> = tensor("y", (2, 3));
    ops::mul(x, y);
}
