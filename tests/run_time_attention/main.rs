//! Attention that is put together at run time: `ops::attend`, `ops::Attend`, and `ops::masked_softmax`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod forms;
mod masked_softmax;
mod masks;
mod mistakes;
mod pytorch;
mod unused;

use attn::{dfdx::prelude::*, ops::Attend};
use support::{
    compare::{Outcome, flat},
    numbers::scattered,
};

/// `[batch, heads, len, width]`
type Vectors = Tensor<(usize, usize, usize, usize), f64, Cpu>;

/// Options of an attention whose queries have a tape.
type Traced = Attend<f64, Cpu, OwnedTape<f64, Cpu>>;

/// Options of one without.
type Untraced = Attend<f64, Cpu>;

/// A tensor of numbers between -1 and 1 that depend on the name.
fn tensor<S: Shape>(name: &str, shape: S) -> Tensor<S, f64, Cpu> {
    Cpu::default().tensor_from_vec(scattered(name, shape.num_elements()), shape)
}

/// A weighted sum of the elements, also of none.
fn loss<S: Shape>(
    y: Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>,
) -> Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>> {
    if y.shape().num_elements() > 0 {
        return support::compare::weighted_sum(y);
    }
    let (y, tape) = y.split_tape();
    y.device().zeros().put_tape(tape)
}

/// Queries, keys and values.
#[derive(Clone)]
struct Inputs {
    q: Vectors,
    k: Vectors,
    v: Vectors,
}

impl Inputs {
    /// Of these sizes: batch, heads, heads of keys, queries, keys, width, width of values.
    fn new([b, h, g, q, k, w, v]: [usize; 7]) -> Self {
        Self {
            q: tensor("q", (b, h, q, w)),
            k: tensor("k", (b, g, k, w)),
            v: tensor("v", (b, g, k, v)),
        }
    }

    /// Every result, and the gradients of a loss that reads them.
    fn results(&self, options: impl Fn() -> Traced) -> Vec<Outcome> {
        let Self { q, k, v } = self;
        let call = || (q.leaky_trace(), k.clone(), v.clone());
        let (q, k, v) = call();
        let alone = {
            let y = options().forward(q, k, v);
            self.outcome([("output", flat(&y))], loss(y))
        };
        let (q, k, v) = call();
        let with_weights = {
            let (y, weights) = options().forward_with_weights(q, k, v);
            let values = [("output", flat(&y)), ("weights", flat(&weights))];
            self.outcome(values, loss(y) + loss(weights))
        };
        let (q, k, v) = call();
        let with_lse = {
            let (y, lse) = options().forward_with_lse(q, k, v);
            let values = [("output", flat(&y)), ("lse", flat(&lse))];
            // A query without a key has an lse of -∞.
            let finite = lse.clamp(-1e9, 1e9);
            self.outcome(values, loss(y) + loss(finite))
        };
        vec![alone, with_weights, with_lse]
    }

    fn outcome<const N: usize>(
        &self,
        values: [(&str, Vec<f64>); N],
        loss: Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>>,
    ) -> Outcome {
        let ran = support::compare::Backpropagated::of(values, loss);
        let ran = ran.input("q", &self.q).input("k", &self.k);
        ran.input("v", &self.v).outcome()
    }
}
