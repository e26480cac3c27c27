//! Sums.

use super::*;
use crate::tensors::flat;
use attn::{
    nn::{Gelu, Residual},
    ops::{self, composed},
};

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize), E, _> = tensor("x", (b, s));
        let y: Tensor<(usize, usize), E, _> = tensor("y", (b, s));
        assert_agree!(
            format!("{b} x {s}"),
            [x, y],
            ops::add(x.leaky_trace(), y.leaky_trace()),
            composed::add(x.leaky_trace(), y.leaky_trace()).unwrap()
        );
    }
}

#[test]
fn it_is_what_dfdx_computes() {
    for_both!(agrees);
}

#[test]
fn views_and_the_same_tensor_twice() {
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
    // A matrix and its transpose share a gradient.
    let y = ops::add(square.leaky_trace(), transposed());
    assert_eq!(y.sum().backward().get(&square).array(), [[2.0; 4]; 4]);
}

#[test]
fn around_a_layer_it_adds_the_input() {
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
    // dfdx's cannot do that.
    let y = Residual(()).forward(x.leaky_trace());
    assert_eq!(flat(&y.sum().backward().get(&x)), [2.0; 12]);
}

#[test]
fn nothing_and_one_operation() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 0));
    backward_of_nothing(ops::add(x.leaky_trace(), x.leaky_trace())).get(&x);
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    assert_eq!(
        operations(ops::add(x.leaky_trace(), x.clone().leaky_traced())),
        1
    );
}

#[test]
#[should_panic(expected = "the shapes of a sum")]
fn other_sizes_are_a_panic() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 2));
    let y: Tensor<(usize, usize), f64, _> = tensor("y", (2, 3));
    ops::add(x, y);
}
