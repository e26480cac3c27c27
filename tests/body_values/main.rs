//! Values of a model that the body of an attention reads, with their gradients.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::body_values!(agree);

model! {
    struct Hidden<d = 3>;
    fn forward(pairs: [seq, seq], x: [seq, d]) -> [seq, d] {
        attend::<mask = causal>(x, x, x, bias = pairs) {
            data bias: [q_len, kv_len];
            fn score(score, q_idx, kv_idx) { score + bias[q_idx, kv_idx] }
        }
    }
}

/// The result, and the gradient of the pairs.
fn of_hidden(pairs: &Tensor<(usize, usize), f64, Cpu>) -> (Vec<f64>, Vec<f64>) {
    let model = Cpu::default().build_module::<Hidden, f64>();
    let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor("x", (pairs.shape().0, Const));
    let y = model.forward((pairs.leaky_trace(), x));
    let numbers = y.as_vec();
    let gradients = y.square().sum().backward();
    (numbers, gradients.get(pairs).as_vec())
}

#[test]
fn what_a_mask_hides_reaches_nothing() {
    let dev = Cpu::default();
    for len in [1, 5, 70] {
        let is_hidden = |i: usize| i % len > i / len;
        let with = |hidden: f64| {
            let numbers = (0..len * len).map(|i| match is_hidden(i) {
                true => hidden,
                false => (i % 7) as f64 / 7.0,
            });
            of_hidden(&dev.tensor_from_vec(numbers.collect(), (len, len)))
        };
        let (y, d) = with(0.0);
        assert_eq!((y, d.clone()), with(f64::NAN), "{len}");
        assert!(
            (0..len * len).all(|i| !is_hidden(i) || d[i] == 0.0),
            "{len}"
        );
    }
}
