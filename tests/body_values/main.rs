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

model! {
    /// `forward` is given the pairs, and `loss` computes them, for one layer.
    struct Later<d = 4, dc = 3>;
    fn forward(x: [batch, q, d], ctx: [batch, k, dc], pair: [batch, q, k]) -> [batch, q, d] {
        attention::<2, bias = false>(x, context = ctx, pair = pair) {
            data pair: [batch, q_len, kv_len];
            param s: [heads] = ones;
            fn score(score, b, h, q_idx, kv_idx) { score + s[h] * sin(pair[b, q_idx, kv_idx]) }
        }
    }
    fn loss(x: [batch, q, d], ctx: [batch, k, dc], pair: [batch, q, k]) -> [] {
        param pb: [] = 0.7;
        mean::<[batch, q, d]>(forward(x, ctx, pair * pb))
    }
}

#[test]
fn values_of_a_later_call_have_a_gradient() {
    let dev = Cpu::default();
    let mut model = dev.build_module::<Later, f64>();
    scatter(&mut model);
    let x: Tensor<(usize, usize, Const<4>), f64, Cpu> = tensor("x", (2, 3, Const));
    let ctx: Tensor<(usize, usize, Const<3>), f64, Cpu> = tensor("ctx", (2, 5, Const));
    let pair: Tensor<(usize, usize, usize), f64, Cpu> = tensor("pair", (2, 3, 5));
    let loss = model.loss((x.leaky_trace(), ctx.clone(), pair.clone()));
    let slope = loss.backward().get(&model.pb.weight).array();
    let at = |pb: f64| {
        let mut model = model.clone();
        model.pb.weight = dev.tensor(pb);
        let loss = model.loss((x.clone(), ctx.clone(), pair.clone()));
        loss.array()
    };
    let pb = model.pb.weight.array();
    let difference = (at(pb + 1e-5) - at(pb - 1e-5)) / 2e-5;
    // The error of a difference is the square of its step, and that of rounding by it, 1e-16 / 1e-5.
    assert!(
        slope != 0.0 && (slope - difference).abs() < 1e-9,
        "{slope} {difference}"
    );
    let fused = model.forward((x.clone(), ctx.clone(), pair.clone()));
    let composed = model.composed().forward((x, ctx, pair));
    for (a, b) in fused.as_vec().into_iter().zip(composed.as_vec()) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }
}

model! {
    struct Long<d = 2, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let near = rearrange::<[batch, seq, (heads, rows)] -> [batch, heads, seq, rows]>(linear::<6>(x));
        let edge = einsum::<[batch, seq, keys]>(tanh(x), x as [batch, keys = seq, d]);
        attention::<heads, kv_heads = 1, mask = sliding_window(200)>(x, near = near, edge = edge) {
            data near: [batch, heads, q_len, 3];
            data edge: [batch, q_len, kv_len];
            fn score(score, b, h, q_idx, kv_idx) {
                score + near[b, h, q_idx, clamp(q_idx - kv_idx + 1, 0, 2)] + edge[b, q_idx, kv_idx]
            }
        }
    }
}

/// The keys of one head are dealt out to several tasks.
#[test]
fn gradients_of_many_keys_are_those_of_the_composed_form() {
    let mut model = Cpu::default().build_module::<Long, f64>();
    scatter(&mut model);
    let x: Tensor<(usize, usize, Const<2>), f64, Cpu> = tensor("x", (1, 300, Const));
    let outcome = |y| -> Outcome {
        let ran: Backpropagated<f64> = backpropagate(y);
        ran.input("x", &x).parameters(&model)
    };
    let fused = outcome(model.forward(x.leaky_trace()));
    let composed = outcome(model.composed().forward(x.leaky_trace()));
    assert_same("many keys", &fused, &composed, 1e-11);
}
