//! Values along a new axis.

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

type Two = (usize, usize);

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (a, b) in SIZES {
        let x: Tensor<Two, E, _> = tensor("x", (a, b));
        let y: Tensor<Two, E, _> = tensor("y", (a, b));
        let values = || [x.leaky_trace(), y.leaky_trace(), x.leaky_trace()];
        let three = Const::<3>;
        assert_agree!(
            format!("along axis 0: {a} x {b}"),
            [x, y],
            ops::stack(values(), Axis::<0>, (three, a, b)),
            composed::stack(values(), Axis::<0>, (three, a, b)).unwrap()
        );
        assert_agree!(
            format!("along axis 1: {a} x {b}"),
            [x, y],
            ops::stack(values(), Axis::<1>, (a, three, b)),
            composed::stack(values(), Axis::<1>, (a, three, b)).unwrap()
        );
        assert_agree!(
            format!("along axis 2: {a} x {b}"),
            [x, y],
            ops::stack(values(), Axis::<2>, (a, b, three)),
            composed::stack(values(), Axis::<2>, (a, b, three)).unwrap()
        );
    }
}

#[test]
fn stacks_equal_those_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn an_index_of_the_new_axis_is_one_of_the_values() {
    let x: Tensor<Two, f64, _> = tensor("x", (3, 5));
    let y: Tensor<Two, f64, _> = tensor("y", (3, 5));
    let z = ops::stack([x.clone(), y.clone()], Axis::<1>, (3, Const::<2>, 5));
    assert_eq!(flat(&ops::select(z.clone(), Axis::<1>, 0)), flat(&x));
    assert_eq!(flat(&ops::select(z, Axis::<1>, 1)), flat(&y));
    let one = ops::stack([x.leaky_trace()], Axis::<0>, (Const::<1>, 3, 5));
    assert_eq!(flat(&one), flat(&x));
    assert_eq!(operations(one), 1);
}

#[test]
fn empty_values_have_gradients() {
    for shape in [(0, 3), (3, 0)] {
        let x: Tensor<Two, f64, _> = tensor("x", shape);
        let y: Tensor<Two, f64, _> = tensor("y", shape);
        let values = || [x.leaky_trace(), y.leaky_trace()];
        let to = (shape.0, Const::<2>, shape.1);
        let gradients = backward_of_nothing(ops::stack(values(), Axis::<1>, to));
        gradients.get(&x);
        gradients.get(&y);
        let gradients = backward_of_nothing(composed::stack(values(), Axis::<1>, to).unwrap());
        gradients.get(&x);
        gradients.get(&y);
    }
}

#[test]
#[should_panic(expected = "2 values of [3, 5] along a new axis 1 are not [3, 4, 5]")]
fn the_new_axis_has_the_size_of_the_number_of_values() {
    let x: Tensor<Two, f64, _> = tensor("x", (3, 5));
    ops::stack([x.clone(), x], Axis::<1>, (3, 4, 5));
}
