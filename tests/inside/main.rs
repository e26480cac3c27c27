//! The values inside of a model, and the first of them that is not finite.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{
    dfdx::prelude::*,
    model,
    train::cross_entropy,
    values::{NonFinite, Pass},
};
use support::tensors::flat;

model! {
    struct Net<vocab = 7, d = 8, layers = 2>;

    fn forward(tokens: ids[batch, seq]) -> ([batch, seq, vocab], [batch, d]) {
        param gain: [d] = 2;
        let mut x = embedding::<vocab, d>(tokens) + sinusoidal_position::<d>(tokens);
        repeat layers {
            let normed = layer_norm(x);
            x += attention::<heads = 2, mask = causal>(normed);
            x += feed_forward::<16, name = mlp>(gain * x);
        }
        let pooled = mean_pool(x);
        (linear::<vocab, name = head>(x), pooled)
    }
}

type Ids = Tensor<Rank2<2, 3>, usize, Cpu>;

fn ids() -> Ids {
    Cpu::default().tensor([[1, 2, 3], [4, 5, 6]])
}

#[test]
fn values_have_the_names_of_variables_and_operations_in_the_order_of_execution() {
    let model = Cpu::seed_from_u64(1).build_module::<Net, f32>();
    let values = model.values(ids());
    let names: Vec<(&str, &str)> = values
        .iter()
        .map(|value| (value.name(), value.operation()))
        .collect();
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut push = |name: &str, operation: &str| expected.push((name.into(), operation.into()));
    push("gain", "gain");
    push("embedding", "embedding");
    push("sinusoidal_position", "sinusoidal_position");
    push("x", "+");
    for round in ["blocks.0.", "blocks.1."] {
        let mut push = |name: &str, operation: &str| {
            push(&format!("{round}{name}"), &format!("{round}{operation}"));
        };
        push("normed", "layer_norm");
        push("attention", "attention");
        push("x", "+");
        push("expand", "expand");
        push("mul", "*");
        push("feed_forward", "mlp");
        push("x", "+");
    }
    push("pooled", "mean_pool");
    push("linear", "head");
    let expected: Vec<_> = expected
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn values_are_those_of_the_model() {
    let model = Cpu::seed_from_u64(1).build_module::<Net, f64>();
    let values = model.values(ids());
    let (logits, pooled) = model.forward(ids());
    assert_eq!(values.get("linear").unwrap().shape(), [2, 3, 7]);
    let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(near(
        values.get("linear").unwrap().numbers(),
        &flat(&logits)
    ));
    assert!(near(
        values.get("pooled").unwrap().numbers(),
        &flat(&pooled)
    ));
    assert_eq!(values.get("gain").unwrap().numbers(), [2.0; 8]);
    // The mean of a row of a norm with its initial gain and bias.
    let normed = values.get("blocks.1.normed").unwrap();
    assert!(
        normed
            .numbers()
            .chunks(8)
            .all(|row| row.iter().sum::<f64>().abs() < 1e-9)
    );
    // Of the variable that changes twice in a round, the last value.
    let x = values.get("blocks.0.x").unwrap().numbers();
    let next = values
        .iter()
        .find(|value| value.name() == "blocks.1.normed")
        .unwrap();
    assert_ne!(x, next.numbers());
    assert!(values.get("y").is_none());
}

#[test]
fn values_of_an_empty_batch_are_empty() {
    let model = Cpu::default().build_module::<Net, f32>();
    let tokens: Tensor<(usize, usize), usize, Cpu> = Cpu::default().zeros_like(&(0, 3));
    let values = model.values(tokens);
    assert_eq!(values.get("linear").unwrap().shape(), [0, 3, 7]);
    assert!(values.get("linear").unwrap().numbers().is_empty());
}

#[test]
fn a_mistake_of_the_call_is_an_error() {
    let model = Cpu::default().build_module::<Net, f32>();
    let wrong: Ids = Cpu::default().tensor([[1, 2, 3], [4, 5, 7]]);
    assert!(model.try_values(wrong.clone()).is_err());
    assert!(model.try_first_non_finite(wrong, |(y, _)| y.sum()).is_err());
}

/// The first of a step that is not finite.
fn first(model: &Net<f32, Cpu>) -> Option<NonFinite> {
    model.first_non_finite(ids().leaky_traced(), |(logits, _)| {
        let targets: Ids = Cpu::default().zeros();
        cross_entropy(logits, &targets, Default::default())
    })
}

#[test]
fn a_pass_of_finite_numbers_has_none() {
    let model = Cpu::seed_from_u64(1).build_module::<Net, f32>();
    assert_eq!(first(&model), None);
}

#[test]
fn the_first_result_that_is_not_finite_is_named() {
    let mut model = Cpu::seed_from_u64(1).build_module::<Net, f32>();
    let mut bias = [0.0; 8];
    bias[3] = f32::INFINITY;
    model.blocks.modules[1].mlp.down_proj.bias.copy_from(&bias);
    let found = first(&model).unwrap();
    assert_eq!(found.pass, Pass::Forward);
    assert_eq!(found.operation, "blocks.1.mlp");
    assert_eq!(found.number, f64::INFINITY);
    assert_eq!(
        found.to_string(),
        "forward: `blocks.1.feed_forward`, the result of `blocks.1.mlp`, has the number inf"
    );
    // Without a tape the forward pass alone is looked at.
    let alone = model.first_non_finite(ids(), |(logits, _)| logits.sum());
    assert_eq!(alone, Some(found));
}

model! {
    /// The derivative of `sqrt` at 0 is infinite.
    struct Root<d = 3>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let shifted = x - 1;
        let root = sqrt(shifted * shifted);
        2 * root
    }
}

#[test]
fn the_first_gradient_that_is_not_finite_is_named() {
    let dev = Cpu::default();
    let model = dev.build_module::<Root, f64>();
    let x: Tensor<Rank2<1, 3>, f64, Cpu> = dev.tensor([[0.0, 1.0, 3.0]]);
    assert_eq!(model.first_non_finite(x.clone(), |y| y.sum()), None);
    let found = model
        .first_non_finite(x.leaky_traced(), |y| y.sum())
        .unwrap();
    assert_eq!(found.pass, Pass::Backward);
    assert_eq!(
        (found.value.as_str(), found.operation.as_str()),
        ("mul", "*")
    );
    assert!(
        found
            .to_string()
            .starts_with("backward: the gradient of `mul`, the result of `*`, has the number")
    );
}

model! {
    struct WithModule<d = 4>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let y = module::<Linear<d, 4>, out = [batch, d], name = inner>(gelu(x));
        let scaled = 3 * y;
        scaled
    }
}

#[test]
fn values_of_a_model_with_a_module_have_its_result() {
    let dev = Cpu::seed_from_u64(2);
    let model = dev.build_module::<WithModule, f32>();
    let x: Tensor<Rank2<2, 4>, f32, Cpu> = dev.sample_normal();
    let values = model.values(x);
    let [y, scaled] = ["y", "scaled"].map(|name| values.get(name).unwrap().numbers());
    assert!(
        y.iter()
            .zip(scaled)
            .all(|(y, scaled)| (3.0 * y - scaled).abs() < 1e-6)
    );
    assert_eq!(values.get("y").unwrap().operation(), "inner");
}

model! {
    /// A quotient by a number that is repeated along a row.
    struct Quotient<d = 2>;

    fn forward(x: [batch, d], by: [batch]) -> [batch, d] {
        x / by
    }
}

/// The reciprocal of such a number is infinite, the quotient is not.
#[test]
fn a_quotient_by_a_subnormal_number_is_finite() {
    let dev = Cpu::default();
    let model = dev.build_module::<Quotient, f32>();
    let x: Tensor<Rank2<1, 2>, f32, Cpu> = dev.tensor([[1e-3, -2e-3]]);
    let y = model.forward((x.clone(), dev.tensor([1e-40])));
    let expected = [1e-3_f32 / 1e-40, -2e-3 / 1e-40].map(f64::from);
    assert_eq!(flat(&y), expected);
    let y = model.composed().forward((x, dev.tensor([1e-40])));
    assert_eq!(flat(&y), expected);
}

model! {
    /// Values by ids, and of some numbers.
    struct Chosen<vocab = 7, d = 4, experts = 3>;

    fn forward(tokens: ids[batch, seq], lens: lens[batch]) -> [batch, d] {
        param table: [vocab, d] = normal(1);
        param gains: [experts, d] = normal(1);
        let x = table[tokens];
        let (scores, chosen) = top_k::<k = 2>(linear::<experts>(x));
        let y = cumsum::<seq>(sum::<2>(gains[chosen] * softmax(scores)));
        let best = argmax::<seq, name = at>(sum::<d>(y));
        let still = detach(l2_norm::<seq>(x)[seq = best]);
        let counts = scatter_add::<[batch, vocab, d]>(y, tokens);
        mean::<seq>(y * softmax::<seq>(x, lens), lens) + still + max::<vocab>(counts)
    }
}

/// Ids are no floats: they are not among the values.
#[test]
fn values_by_ids_have_the_names_of_variables_and_operations() {
    let mut model = Cpu::seed_from_u64(1).build_module::<Chosen, f64>();
    let lens = Cpu::default().tensor([3, 2]);
    let values = model.values((ids(), lens.clone()));
    let names: Vec<(&str, &str)> = values
        .iter()
        .map(|value| (value.name(), value.operation()))
        .collect();
    let expected = [
        ("table", "table"),
        ("gains", "gains"),
        ("x", "gather 7"),
        ("linear", "linear"),
        ("scores", "gather 3"),
        ("part", "gather 3"),
        ("softmax", "softmax"),
        ("expand", "expand"),
        ("mul", "*"),
        ("sum", "sum 2"),
        ("y", "cumsum seq"),
        ("sum", "sum 4"),
        ("l2_norm", "l2_norm seq"),
        ("part", "gather seq"),
        ("still", "detach"),
        ("counts", "scatter_add 7"),
        ("softmax", "softmax seq"),
        ("mul", "*"),
        ("mean", "mean seq"),
        ("add", "+"),
        ("max", "max 7"),
        ("add", "+"),
    ];
    assert_eq!(names, expected);
    let table = model.table.weight.as_vec();
    let rows = ids().as_vec().into_iter();
    let rows: Vec<f64> = rows
        .flat_map(|id| table[4 * id..4 * id + 4].to_vec())
        .collect();
    assert_eq!(values.get("x").unwrap().numbers(), rows);

    // Sums that are too large for a number.
    model.gains.weight = Cpu::default().ones() * 1e308;
    let found = model.first_non_finite((ids(), lens), |y| y.sum());
    assert_eq!(found.unwrap().operation, "cumsum seq");
}
