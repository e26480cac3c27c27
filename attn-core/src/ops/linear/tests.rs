//! Tests of the composed form.

use dfdx::prelude::*;

use super::{Affine, composed::project};
use crate::{Element, testing::*};

type Weight<E> = Tensor<Rank2<2, 3>, E, Cpu>;
type Bias<E> = Tensor<Rank1<2>, E, Cpu>;

fn parameters<E: Element>() -> (Weight<E>, Bias<E>)
where
    Cpu: Device<E>,
{
    (tensor(Default::default(), 2), tensor(Default::default(), 3))
}

fn affine<'a, const I: usize, const O: usize, E: Element>(
    weight: &'a Tensor<Rank2<O, I>, E, Cpu>,
    bias: Option<&'a Tensor<Rank1<O>, E, Cpu>>,
) -> Affine<'a, I, O, E, Cpu>
where
    Cpu: Device<E>,
{
    Affine { weight, bias }
}

fn check<E: Element>([b, s]: [usize; 2], tolerance: f64)
where
    Cpu: Device<E>,
{
    let x: Tensor<(usize, usize, Const<3>), E, Cpu> = tensor((b, s, Const), 1);
    let (weight, bias) = parameters::<E>();
    let with_bias = project(x.clone(), affine(&weight, Some(&bias))).unwrap();
    let without = project(x.clone(), affine(&weight, None)).unwrap();
    let x = values(&x);
    let weight = values(&weight);
    let bias = values(&bias);
    let product = |_, b_, s_, o| {
        (0..3)
            .map(|i| x[at([b, s, 3], [b_, s_, i])] * weight[o * 3 + i])
            .sum::<f64>()
    };
    let expected = naive([1, b, s, 2], product);
    assert_close(&values(&without), &expected, tolerance);
    let expected = naive([1, b, s, 2], |a, b, s, o| product(a, b, s, o) + bias[o]);
    assert_close(&values(&with_bias), &expected, tolerance);
}

#[test]
fn linear_multiplies_by_the_transposed_weight() {
    for sizes in [[2, 3], [1, 1], [0, 3], [2, 0]] {
        check::<f64>(sizes, F64);
        check::<f32>(sizes, F32);
    }
}

#[test]
fn linear_has_gradients_of_input_weight_and_bias() {
    let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((2, 4, Const), 1);
    let (weight, bias) = parameters::<f64>();
    check_gradient(&x, |x| {
        project(x.leaky_trace(), affine(&weight, Some(&bias))).unwrap()
    });
    check_gradient(&weight, |w| {
        project(x.leaky_trace(), affine(w, Some(&bias))).unwrap()
    });
    check_gradient(&bias, |b| {
        project(x.leaky_trace(), affine(&weight, Some(b))).unwrap()
    });
    check_gradient(&x, |x| {
        project(x.leaky_trace(), affine(&weight, None)).unwrap()
    });
}

#[test]
fn permuted_and_broadcast_inputs_get_their_whole_gradient() {
    let (weight, bias) = parameters::<f64>();
    let shape = (2, 4, Const);
    type X = Traced<(usize, usize, Const<3>)>;

    let permuted: Tensor<(Const<3>, usize, usize), f64, Cpu> = tensor((Const, 4, 2), 1);
    check_gradient(&permuted, |x| {
        let x: X = x.leaky_trace().permute::<_, Axes3<2, 1, 0>>();
        project(x, affine(&weight, Some(&bias))).unwrap()
    });
    let row: Tensor<Rank1<3>, f64, Cpu> = tensor((Const,), 1);
    check_gradient(&row, |x| {
        let x: X = x.leaky_trace().broadcast_like::<_, Axes2<0, 1>>(&shape);
        project(x, affine(&weight, Some(&bias))).unwrap()
    });
    let per_sequence: Tensor<(usize, Const<3>), f64, Cpu> = tensor((2, Const), 1);
    check_gradient(&per_sequence, |x| {
        let x: X = x.leaky_trace().broadcast_like::<_, Axis<1>>(&shape);
        project(x, affine(&weight, Some(&bias))).unwrap()
    });
}

/// It is large enough for dfdx's matrix product to use several threads: without the copy, most runs fail.
#[test]
fn a_large_broadcast_input_gets_its_whole_gradient() {
    const N: usize = 512;
    const LEN: usize = 4096;
    let one: Tensor<(), f64, Cpu> = tensor((), 1);
    let weight: Tensor<Rank2<N, N>, f64, Cpu> = tensor(Default::default(), 2);
    let x: Traced<Rank3<1, LEN, N>> = one.leaky_trace().broadcast();
    let loss = project(x, affine(&weight, None)).unwrap().sum();
    let expected = LEN as f64 * values(&weight).iter().sum::<f64>();
    // 2 million partial sums in another order: if all roundings of 1e-16 had one sign, the error would be 2e-10.
    assert_close(&values(&loss.backward().get(&one)), &[expected], 1e-9);
}

#[test]
fn parameters_get_gradients_from_an_empty_input() {
    let x: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor((2, 0, Const), 1);
    let (weight, bias) = parameters::<f64>();
    let y = project(x.leaky_trace(), affine(&weight, Some(&bias))).unwrap();
    let gradients = backward_of_nothing(y);
    assert_eq!(values(&gradients.get(&weight)), [0.0; 6]);
    assert_eq!(values(&gradients.get(&bias)), [0.0; 2]);
    gradients.get(&x);
}
