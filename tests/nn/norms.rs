//! Layer norm and root mean square norm.

use super::*;
use attn::{
    nn::{LayerNorm, RmsNorm},
    ops::{self, composed},
};
use support::tensors::flat;

const EPSILON: f64 = 1e-3;

/// Errors are amplified by the division by a deviation, which is at least the root of epsilon.
const DEVIATION: f64 = 32.0;

fn they_agree<E: Element, const M: usize>()
where
    Cpu: Backend<E>,
{
    let gain: Tensor<Rank1<M>, E, _> = tensor("gain", Default::default());
    let bias: Tensor<Rank1<M>, E, _> = tensor("bias", Default::default());
    for (b, s) in SIZES {
        let x: Tensor<(usize, usize, Const<M>), E, _> = tensor("x", (b, s, Const));
        let what = format!("{b} x {s} x {M}");
        assert_agree!(
            &what,
            [x, gain, bias],
            ops::layer_norm(x.leaky_trace(), &gain, &bias, EPSILON),
            composed::layer_norm(x.leaky_trace(), &gain, &bias, EPSILON).unwrap(),
            DEVIATION
        );
        assert_agree!(
            &what,
            [x, gain],
            ops::rms_norm(x.leaky_trace(), &gain, EPSILON),
            composed::rms_norm(x.leaky_trace(), &gain, EPSILON).unwrap(),
            DEVIATION
        );
    }
}

#[test]
fn norms_equal_those_of_dfdx() {
    they_agree::<f32, 1>();
    they_agree::<f32, 33>();
    they_agree::<f64, 2>();
    they_agree::<f64, 33>();
}

/// The definition, in `f64`.
fn naive(x: &[f64], gain: &[f64], bias: &[f64], centred: bool) -> Vec<f64> {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let rows = x.chunks(gain.len()).flat_map(|row| {
        let centre = if centred { mean(row) } else { 0.0 };
        let squares: Vec<f64> = row.iter().map(|x| (x - centre).powi(2)).collect();
        let deviation = (mean(&squares) + EPSILON).sqrt();
        let parts = row.iter().zip(gain).zip(bias);
        let row = parts.map(move |((x, gain), bias)| (x - centre) / deviation * gain + bias);
        row.collect::<Vec<_>>()
    });
    rows.collect()
}

#[test]
fn norms_equal_their_definitions() {
    let x: Tensor<Rank2<5, 13>, f64, _> = tensor("x", Default::default());
    let gain: Tensor<Rank1<13>, f64, _> = tensor("gain", Default::default());
    let bias: Tensor<Rank1<13>, f64, _> = tensor("bias", Default::default());
    let y = ops::layer_norm(x.clone(), &gain, &bias, EPSILON);
    let expected = naive(&flat(&x), &flat(&gain), &flat(&bias), true);
    compare::assert_close("layer", &flat(&y), &expected, tolerance::<f64>());
    let y = ops::rms_norm(x.clone(), &gain, EPSILON);
    let expected = naive(&flat(&x), &flat(&gain), &[0.0; 13], false);
    compare::assert_close("rms", &flat(&y), &expected, tolerance::<f64>());
}

#[test]
fn views_and_equal_operands_are_accepted() {
    let columns: Tensor<Rank2<9, 4>, f64, _> = tensor("columns", Default::default());
    let gain: Tensor<Rank1<9>, f64, _> = tensor("gain", Default::default());
    let permuted = || -> Traced<Rank2<4, 9>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns, gain],
        ops::rms_norm(permuted(), &gain, EPSILON),
        composed::rms_norm(permuted(), &gain, EPSILON).unwrap()
    );
    // One tensor is all arguments, so its gradient is the sum of theirs.
    let [x, g, b] = ["x", "x", "x"]
        .map(|name| -> Tensor<Rank1<9>, f64, Cpu> { tensor(name, Default::default()) });
    let apart = backpropagate(ops::layer_norm(x.leaky_trace(), &g, &b, EPSILON))
        .input("x", &x)
        .input("gain", &g)
        .input("bias", &b)
        .parameters(&());
    let one = backpropagate(ops::layer_norm(x.leaky_trace(), &x, &x, EPSILON))
        .input("x", &x)
        .parameters(&());
    let sum: Vec<f64> = (0..9)
        .map(|i| {
            ["x", "gain", "bias"]
                .map(|name| apart.gradient(name)[i])
                .iter()
                .sum()
        })
        .collect();
    compare::assert_close("one", one.gradient("x"), &sum, tolerance::<f64>());
}

#[test]
fn empty_rows_are_accepted() {
    let gain: Tensor<Rank1<3>, f64, _> = tensor("gain", Default::default());
    let bias: Tensor<Rank1<3>, f64, _> = tensor("bias", Default::default());
    let x: Tensor<(usize, Const<3>), f64, _> = tensor("x", (0, Const));
    let gradients = backward_of_nothing(ops::layer_norm(x.leaky_trace(), &gain, &bias, EPSILON));
    assert_eq!(gradients.get(&gain).array(), [0.0; 3]);
    assert_eq!(gradients.get(&bias).array(), [0.0; 3]);
    gradients.get(&x);
    let none: Tensor<Rank1<0>, f64, _> = Cpu::default().zeros();
    let x: Tensor<Rank2<2, 0>, f64, _> = Cpu::default().zeros();
    backward_of_nothing(ops::rms_norm(x.leaky_trace(), &none, EPSILON)).get(&none);
}

#[test]
fn a_constant_row_has_a_finite_gradient() {
    let x: Tensor<Rank1<5>, f32, _> = Cpu::default().ones();
    let norm = Cpu::default().build_module::<LayerNorm<5>, f32>();
    let y = norm.forward(x.leaky_trace());
    assert_eq!(y.array(), [0.0; 5]);
    let gradient = y.square().sum().backward().get(&x).array();
    assert!(gradient.iter().all(|g| g.is_finite()), "{gradient:?}");
}

#[test]
#[should_panic(expected = "rms_norm: epsilon is 0")]
fn an_epsilon_of_zero_is_refused() {
    let mut norm = Cpu::default().build_module::<RmsNorm<5>, f32>();
    norm.epsilon = 0.0;
    norm.forward(Cpu::default().zeros::<Rank1<5>>());
}

#[test]
fn norms_are_one_operation_each() {
    let x: Tensor<Rank2<2, 5>, f32, _> = tensor("x", Default::default());
    let layer = Cpu::default().build_module::<LayerNorm<5>, f32>();
    assert_eq!(operations(layer.forward(x.leaky_trace())), 1);
    let rms = Cpu::default().build_module::<RmsNorm<5>, f32>();
    assert_eq!(operations(rms.forward(x.leaky_trace())), 1);
}
