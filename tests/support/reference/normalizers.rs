//! Normalizers.
//!
//! Masked scores are overwritten with a large negative number, as is usual in hand-written layers. A row with no other scores is
//! overwritten with zeros afterwards.

use super::{Heads, Mask, number};
use crate::tensors::flat;
use dfdx::prelude::*;

/// Lower than any score, so that its exponential is zero.
const HIDDEN: f64 = -1e9;

/// `exp(s) / Σ exp(s)` over what the mask allows; a row with nothing allowed is zero.
pub fn softmax<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    let weights = overwrite(scores, mask, HIDDEN).softmax::<Axis<3>>();
    overwrite(weights, mask, 0.0)
}

/// `exp(s) / (1 + Σ exp(s))`: a softmax with one more key, whose score is 0 and whose value is 0.
pub fn softmax1<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, queries, keys) = *scores.shape();
    let nothing = Cpu::default().zeros_like(&(batch, heads, queries, 1));
    let weights = (overwrite(scores, mask, HIDDEN), nothing)
        .concat_along(Axis::<3>)
        .softmax::<Axis<3>>()
        .slice((0..batch, 0..heads, 0..queries, 0..keys));
    overwrite(weights, mask, 0.0)
}

/// `exp(s) / (exp(sink) + Σ exp(s))`: a softmax with one more key, whose score is the sink of the head and whose value is 0.
pub fn sink<E: Dtype>(scores: Heads<E>, mask: &Mask, sink: Tensor<(usize,), E, Cpu>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, queries, keys) = *scores.shape();
    let sinks = sink
        .retaped::<OwnedTape<E, Cpu>>()
        .broadcast_like::<_, Axes3<0, 2, 3>>(&(batch, heads, queries, 1));
    let weights = (overwrite(scores, mask, HIDDEN), sinks)
        .concat_along(Axis::<3>)
        .softmax::<Axis<3>>()
        .slice((0..batch, 0..heads, 0..queries, 0..keys));
    overwrite(weights, mask, 0.0)
}

/// `max(s, 0)^power`, for every key separately.
pub fn relu<E: Dtype>(scores: Heads<E>, mask: &Mask, power: i32) -> Heads<E>
where
    Cpu: Device<E>,
{
    alone(scores.relu().powi(power), mask)
}

/// `f(s)^order`, where `f(s) = max(s / order - τ, 0)` with the `τ` for which the weights of a query have the sum 1: sparsemax for
/// order 1, entmax of `α = 1.5` for order 2.
///
/// `τ` is found by bisection outside of the tape. Then the tape gets one step of Newton's method from there. The step is 0, but
/// it has the derivative of `τ`.
pub fn entmax<E: Dtype>(scores: Heads<E>, mask: &Mask, order: i32) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *scores.shape();
    let keys = shape.3;
    let scores = scores / number::<E>(f64::from(order));
    let rows: Vec<f64> = flat(&scores);
    let allowed = mask.clone().broadcast_like::<_, Axis<1>>(&shape).as_vec();
    let taus = rows.chunks(keys).zip(allowed.chunks(keys));
    let taus = taus.flat_map(|(row, allowed)| {
        let row = row.iter().zip(allowed).filter(|(_, allowed)| **allowed);
        let row: Vec<f64> = row.map(|(score, _)| *score).collect();
        vec![number::<E>(threshold(&row, order)); keys]
    });
    let taus = Cpu::default().tensor_from_vec(taus.collect(), shape);
    let d = overwrite(scores, mask, HIDDEN) - taus;
    let sum = d.with_empty_tape().relu().powi(order).sum::<_, Axis<3>>();
    let slope = match order {
        1 => d.retaped::<NoneTape>().gt(E::default()).choose(
            Cpu::default().ones_like(&shape),
            Cpu::default().zeros_like(&shape),
        ),
        _ => d.retaped::<NoneTape>().relu() * number::<E>(2.0),
    };
    let slope = slope.sum::<_, Axis<3>>().clamp(1e-9, 1e9);
    let step = (sum - number::<E>(1.0)) / slope;
    let weights = (d - step.broadcast_like::<_, Axis<3>>(&shape))
        .relu()
        .powi(order);
    overwrite(weights, mask, 0.0)
}

/// The threshold of a row: below its largest score, by at most 1.
fn threshold(row: &[f64], order: i32) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut below = max - 1.0;
    let mut above = max;
    for _ in 0..100 {
        let tau = (below + above) / 2.0;
        let sum: f64 = row.iter().map(|s| (s - tau).max(0.0).powi(order)).sum();
        *(if sum > 1.0 { &mut below } else { &mut above }) = tau;
    }
    if row.is_empty() { 0.0 } else { below }
}

/// `1 / (1 + exp(-s))`, for every key separately.
pub fn sigmoid<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    alone(scores.sigmoid(), mask)
}

/// Weights as they are, where the mask allows.
pub fn alone<E: Dtype>(weights: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    overwrite(weights, mask, 0.0)
}

/// `x` where the mask allows, `value` elsewhere.
fn overwrite<E: Dtype>(x: Heads<E>, mask: &Mask, value: f64) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *x.shape();
    let value =
        Cpu::default().tensor_from_vec(vec![number::<E>(value); shape.num_elements()], shape);
    mask.clone()
        .broadcast_like::<_, Axis<1>>(&shape)
        .choose(x, value)
}
