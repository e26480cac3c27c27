//! `x Wᵀ + b`

use super::*;
use attn::ops::{self, composed};
use support::tensors::flat;

const I: usize = 7;
const O: usize = 9;

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    let weight: Tensor<Rank2<O, I>, E, _> = tensor("weight", Default::default());
    let bias: Tensor<Rank1<O>, E, _> = tensor("bias", Default::default());
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize, Const<I>), E, _> = tensor("x", (b, s, Const));
        assert_agree!(
            format!("{b} x {s}"),
            [x, weight, bias],
            ops::linear(x.leaky_trace(), &weight, Some(&bias)),
            composed::linear(x.leaky_trace(), &weight, Some(&bias)).unwrap()
        );
        assert_agree!(
            format!("{b} x {s} without a bias"),
            [x, weight],
            ops::linear(x.leaky_trace(), &weight, None),
            composed::linear(x.leaky_trace(), &weight, None).unwrap()
        );
    }
}

#[test]
fn linear_equals_that_of_dfdx() {
    for_both!(agrees);
}

#[test]
fn inputs_have_one_to_four_axes() {
    let weight: Tensor<Rank2<O, I>, f64, _> = tensor("weight", Default::default());
    let x: Tensor<Rank4<2, 1, 3, I>, f64, _> = tensor("x", Default::default());
    let expected = flat(&ops::linear(x.clone(), &weight, None));
    let three: Tensor<Rank3<2, 3, I>, f64, _> = x.clone().reshape();
    let y: Tensor<Rank3<2, 3, O>, f64, _> = ops::linear(three, &weight, None);
    assert_eq!(flat(&y), expected);
    let two: Tensor<(usize, Const<I>), f64, _> = x.clone().reshape_like(&(6, Const));
    let y: Tensor<(usize, Const<O>), f64, _> = ops::linear(two, &weight, None);
    assert_eq!(flat(&y), expected);
    let one: Tensor<Rank1<I>, f64, _> = x.reshape::<Rank2<6, I>>().select(Cpu::default().tensor(4));
    let y: Tensor<Rank1<O>, f64, _> = ops::linear(one.leaky_traced(), &weight, None)
        .split_tape()
        .0;
    // A single row is summed in another order than several.
    compare::assert_close(
        "one row",
        &flat(&y),
        &expected[4 * O..5 * O],
        tolerance::<f64>(),
    );
}

#[test]
fn views_and_equal_operands_are_accepted() {
    // Columns of a matrix, and a broadcast vector.
    let columns: Tensor<Rank3<I, 4, 2>, f64, _> = tensor("columns", Default::default());
    let row: Tensor<Rank1<I>, f64, _> = tensor("row", Default::default());
    let square: Tensor<Rank2<I, I>, f64, _> = tensor("square", Default::default());
    let permuted = |x: &Tensor<Rank3<I, 4, 2>, f64, Cpu>| -> Traced<Rank3<2, 4, I>, f64> {
        x.leaky_trace().permute()
    };
    assert_agree!(
        "permuted",
        [columns, square],
        ops::linear(permuted(&columns), &square, None),
        composed::linear(permuted(&columns), &square, None).unwrap()
    );
    let broadcast = || -> Traced<Rank2<5, I>, f64> { row.leaky_trace().broadcast::<_, Axis<0>>() };
    assert_agree!(
        "broadcast",
        [row, square],
        ops::linear(broadcast(), &square, Some(&row)),
        composed::linear(broadcast(), &square, Some(&row)).unwrap()
    );
    // A matrix that is also the input. dfdx's product would panic, so there the input is another tensor.
    let other = square.clone().leaky_traced() + 0.0;
    let (other, _) = other.split_tape();
    let expected = backpropagate(ops::linear(other.leaky_trace(), &square, None))
        .input("x", &other)
        .input("weight", &square)
        .parameters(&());
    let found = backpropagate(ops::linear(square.leaky_trace(), &square, None))
        .input("both", &square)
        .parameters(&());
    let sum: Vec<f64> = std::iter::zip(expected.gradient("x"), expected.gradient("weight"))
        .map(|(x, weight)| x + weight)
        .collect();
    compare::assert_close("both", found.gradient("both"), &sum, tolerance::<f64>());
}

#[test]
fn empty_inputs_and_outputs_are_accepted() {
    let weight: Tensor<Rank2<O, I>, f64, _> = tensor("weight", Default::default());
    let bias: Tensor<Rank1<O>, f64, _> = tensor("bias", Default::default());
    for (b, s) in [(0, 3), (2, 0)] {
        let x: Tensor<(usize, usize, Const<I>), f64, _> = tensor("x", (b, s, Const));
        let y = ops::linear(x.leaky_trace(), &weight, Some(&bias));
        assert_eq!(y.shape().concrete(), [b, s, O]);
        let gradients = backward_of_nothing(y);
        assert_eq!(flat(&gradients.get(&weight)), [0.0; O * I]);
        assert_eq!(flat(&gradients.get(&bias)), [0.0; O]);
        gradients.get(&x);
    }
    // An empty sum is the bias.
    let weight: Tensor<Rank2<O, 0>, f64, _> = Cpu::default().zeros();
    let x: Tensor<Rank2<3, 0>, f64, _> = Cpu::default().zeros();
    let y = ops::linear(x.leaky_trace(), &weight, Some(&bias));
    assert_eq!(flat(&y), flat(&bias).repeat(3));
    let gradients = y.sum().backward();
    assert_eq!(gradients.get(&bias).array(), [3.0; O]);
}

#[test]
fn outputs_larger_than_memory_are_errors() {
    let weight: Tensor<Rank2<O, I>, f32, _> = tensor("weight", Default::default());
    let row: Tensor<Rank1<I>, f32, _> = tensor("row", Default::default());
    let x = row.broadcast_like::<_, Axis<0>>(&(1_usize << 58, Const::<I>));
    let error = ops::try_linear(x, &weight, None).map(drop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "linear: axis 0 (288230376151711744) * axis 1 (7) does not fit into memory"
    );
}

#[test]
fn linear_is_one_operation() {
    let weight: Tensor<Rank2<O, I>, f32, _> = tensor("weight", Default::default());
    let bias: Tensor<Rank1<O>, f32, _> = tensor("bias", Default::default());
    let x: Tensor<Rank2<2, I>, f32, _> = tensor("x", Default::default());
    assert_eq!(
        operations(ops::linear(x.leaky_trace(), &weight, Some(&bias))),
        1
    );
}
