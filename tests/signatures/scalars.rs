//! Single numbers: values without an axis.

use super::*;
use attn::{memory, model};

model! {
    /// A loss as the result.
    struct Fit<d = 4>;

    fn forward(x: [batch, d], y: [batch, d], weight: []) -> [] {
        weight * squared(linear::<d>(x) - y)
    }

    fn report(x: [batch, d], y: [batch, d]) -> { loss: [], error: [batch, d] } {
        let error = linear::<d, name = other>(x) - y;
        { loss: squared(error), error }
    }

    /// The first input is a number.
    fn scaled(by: [], x: [d]) -> [d] { by * x + exp(by) }

    block squared(x: [batch, n]) -> [] { mean::<[batch, n]>(x * x) }
}

fn fit() -> Fit<f64, Cpu> {
    let mut fit = Cpu::default().build_module::<Fit, f64>();
    scatter(&mut fit);
    fit
}

fn data() -> [Tensor<(usize, Const<4>), f64, Cpu>; 2] {
    ["x", "y"].map(|name| tensor::<_, f64>(name, (3, Const)))
}

#[test]
fn a_loss_is_a_result() {
    let _alone = alone();
    let fit = fit();
    let [x, y] = data();
    let weight: Tensor<Rank0, f64, Cpu> = fit.linear.weight.device().tensor(0.7);
    let inputs = || (x.clone().leaky_traced(), y.clone(), weight.clone());
    let loss: Tensor<Rank0, f64, Cpu, _> = fit.forward(inputs());
    let composed = fit.composed().forward(inputs());
    // By hand, with the layer of dfdx.
    let error = fit.linear.forward(x.clone().leaky_traced()) - y.clone();
    let expected: Tensor<Rank0, f64, Cpu, _> = error.square().mean() * 0.7;
    for loss in [&loss, &composed] {
        // A dozen of numbers, added in another order.
        let loss: f64 = loss.array();
        assert!((loss - expected.array()).abs() < 20.0 * f64::EPSILON);
    }
    let done = [loss, composed, expected].map(|loss| loss.backward());
    let of = |done: &Gradients<f64, Cpu>| {
        let weight = done.get(&fit.linear.weight).as_vec();
        [weight, done.get(&x).as_vec()].concat()
    };
    let [fused, composed, expected] = [0, 1, 2].map(|index| of(&done[index]));
    for found in [fused, composed] {
        let mut pairs = found.iter().zip(&expected);
        assert!(pairs.all(|(a, b)| (a - b).abs() < 20.0 * f64::EPSILON));
    }
    // The gradient of a number.
    let mean = fit.forward(inputs()).array() / 0.7;
    let found = done[0].get(&weight).array();
    assert!((found - mean).abs() < 20.0 * f64::EPSILON * mean);
}

#[test]
fn a_number_beside_other_results() {
    let _alone = alone();
    let fit = fit();
    let [x, y] = data();
    let FitReportOutput { loss, error } = fit.report((x, y));
    let mean: Tensor<Rank0, f64, Cpu> = error.square().mean();
    let mean = mean.array();
    let loss: f64 = loss.array();
    assert!((loss - mean).abs() < 20.0 * f64::EPSILON * mean);
}

#[test]
fn a_number_as_the_first_input() {
    let _alone = alone();
    let fit = fit();
    let x = tensor::<_, f64>("x", (Const::<4>,));
    let at = |by: f64| -> Tensor<Rank0, f64, Cpu> { x.device().tensor(by) };
    let by = at(0.3);
    let y = fit.scaled((by.clone().leaky_traced(), x.clone()));
    let expected: Vec<f64> = x.as_vec().iter().map(|x| 0.3 * x + 0.3_f64.exp()).collect();
    let mut pairs = y.as_vec().into_iter().zip(&expected);
    assert!(pairs.all(|(a, b)| (a - b).abs() < 4.0 * f64::EPSILON));
    let found = y.sum().backward().get(&by).array();
    let slope = support::differences::slope(1e-4, |by| {
        let y: Tensor<Rank0, f64, Cpu> = fit.scaled((at(0.3 + by), x.clone())).sum();
        y.array()
    });
    assert!((found - slope).abs() < 1e-9 * slope.abs());
}

#[test]
fn the_memory_of_a_loss() {
    let _alone = alone();
    let mut fit = Cpu::default().build_module::<Fit, f32>();
    let x = tensor::<_, f32>("x", (3, Const::<4>));
    let weight: Tensor<Rank0, f32, Cpu> = x.device().tensor(0.7);
    memory::reset_peak();
    let before = memory::allocated();
    fit.forward_mut((x.clone().leaky_traced(), x, weight))
        .backward();
    assert_eq!(memory::peak() - before, Fit::activation_bytes(3));
}
