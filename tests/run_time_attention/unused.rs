//! Results that no loss reads: their gradients are 0, and nothing is computed for them.

use attn::dfdx::{
    prelude::*,
    tensor::{Merge, PutTape, SplitTape},
};

use super::{Inputs, Traced, loss};

const SIZES: [usize; 7] = [2, 4, 2, 7, 9, 3, 5];

type Losses = Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>>;

/// The gradients of queries, keys and values.
fn gradients(of: impl Fn(Inputs) -> Losses) -> [Vec<f64>; 3] {
    let inputs = Inputs::new(SIZES);
    let gradients = of(inputs.clone()).backward();
    [&inputs.q, &inputs.k, &inputs.v].map(|x| gradients.get(x).as_vec())
}

#[test]
fn weights_that_are_looked_at_change_no_gradient() {
    let alone = gradients(|of| loss(Traced::new().forward(of.q.leaky_traced(), of.k, of.v)));
    let dropped = gradients(|of| {
        let (y, _) = Traced::new().forward_with_weights(of.q.leaky_traced(), of.k, of.v);
        loss(y)
    });
    let merged = gradients(|of| {
        let (y, weights) = Traced::new().forward_with_weights(of.q.leaky_traced(), of.k, of.v);
        let (y, tape) = y.split_tape();
        loss(y.put_tape(tape.merge(weights.split_tape().1)))
    });
    assert_eq!(dropped, alone);
    assert_eq!(merged, alone);
}

#[test]
fn a_loss_may_read_the_weights_alone() {
    let alone = gradients(|of| {
        let (y, weights) = Traced::new().forward_with_weights(of.q.leaky_traced(), of.k, of.v);
        let (weights, tape) = weights.split_tape();
        loss(weights.put_tape(tape.merge(y.split_tape().1)))
    });
    let both = gradients(|of| {
        let (y, weights) = Traced::new().forward_with_weights(of.q.leaky_traced(), of.k, of.v);
        loss(weights) + loss(y) * 0.0
    });
    assert_eq!(alone, both);
    assert!(alone[0].iter().any(|d| *d != 0.0));
    assert!(alone[2].iter().all(|d| *d == 0.0));
}
