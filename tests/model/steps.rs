//! Twenty training steps of a declared network, and of a hand-written one.

use super::*;
use attn::train::{AdamW, AdamWConfig};
use std::collections::BTreeMap;
use support::adamw::{Naive, Settings};
use support::compare::assert_close;
use support::reference::Traced;

/// Parameters or gradients, by the names under which the declared network saves its parameters.
pub(super) type ByName = BTreeMap<String, Vec<f64>>;

/// Hyperparameters that all matter. With this epsilon a parameter moves by at most `lr / epsilon = 10` times the gradient, also
/// if the gradient is a rounding error.
const CONFIG: AdamWConfig = AdamWConfig {
    lr: 0.01,
    betas: [0.9, 0.98],
    epsilon: 1e-3,
    weight_decay: 0.1,
};

/// Sums of up to 24 terms of order 1, about sixty in a row in both passes, are rounded by √(60 · 24) ε / 2 = 20 ε. Each of twenty
/// steps adds ten times that to the difference of the parameters: 4000 ε.
const TOLERANCE: f64 = 4000.0 * f64::EPSILON;

/// A larger number is not a rounding error: a mistake of a millionth of it is found.
const SEEN: f64 = 1e6 * TOLERANCE;

/// Trains both, each with its own optimizer from the same parameters, and asserts that the loss, all gradients and all parameters
/// are the same after every step. `loss` is that of the declared network on the data of a step. `by_hand` returns the same with
/// its gradients.
pub(super) fn are_the_same<M: TensorCollection<f64, Cpu>>(
    mut declared: M,
    loss: impl Fn(&M, usize) -> Traced<Rank0, f64>,
    by_hand: impl Fn(&ByName, usize) -> (f64, ByName),
) {
    let mut parameters = by_name(tensors::parameters(&declared));
    let mut optimizer = AdamW::new(CONFIG);
    let mut naive = Naive::default();
    for step in 1..=20 {
        let found = loss(&declared, step);
        let (expected, expected_gradients) = by_hand(&parameters, step);
        let what = format!("loss of step {step}");
        assert_close(what, &[found.array()], &[expected], TOLERANCE);

        let mut gradients = found.backward();
        let found = by_name(tensors::gradients(&declared, &gradients));
        assert_all_close(step, "gradient", &found, &expected_gradients);
        assert_all_seen(&found);

        optimizer.update(&mut declared, &mut gradients).unwrap();
        for (name, values) in &mut parameters {
            let is_gain_or_table = ["norm", "embedding", "position"]
                .iter()
                .any(|kind| name.contains(kind));
            let is_matrix = name.ends_with("weight") && !is_gain_or_table;
            let gradient = &expected_gradients[name];
            let settings = Settings {
                lr: CONFIG.lr,
                betas: CONFIG.betas,
                epsilon: CONFIG.epsilon,
                weight_decay: CONFIG.weight_decay,
            };
            naive.step(settings, step as i32, name, values, gradient, is_matrix);
        }
        let found = by_name(tensors::parameters(&declared));
        assert_all_close(step, "parameter", &found, &parameters);
    }
}

fn by_name(all: Vec<tensors::Named>) -> ByName {
    all.into_iter().map(|p| (p.name, p.values)).collect()
}

fn assert_all_close(step: usize, kind: &str, found: &ByName, expected: &ByName) {
    assert!(found.keys().eq(expected.keys()), "what has a {kind}");
    for (name, values) in found {
        let what = format!("{kind} {name} of step {step}");
        assert_close(what, values, &expected[name], TOLERANCE);
    }
}

/// Asserts that no gradient is a rounding error. The exception is the bias of a key: it shifts all scores of a query, which a
/// softmax cancels.
fn assert_all_seen(gradients: &ByName) {
    for (name, values) in gradients {
        let is_seen = values.iter().any(|value| value.abs() > SEEN);
        assert_eq!(is_seen, !name.ends_with("k_proj.bias"), "{name}");
    }
}
