//! From scores to weights.
//!
//! Masked scores are overwritten with a large negative number, as hand-written layers do, and what the normalizer makes
//! of a row that has nothing else is overwritten with zero afterwards.

use super::{Heads, Mask, number};
use dfdx::prelude::*;

/// Lower than any score by so much that its exponential is zero.
const HIDDEN: f64 = -1e9;

/// `exp(s) / Σ exp(s)` over what the mask allows; a row with nothing allowed is zero.
pub(crate) fn softmax<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    let weights = overwrite(scores, mask, HIDDEN).softmax::<Axis<3>>();
    overwrite(weights, mask, 0.0)
}

/// `exp(s) / (1 + Σ exp(s))`: a softmax with one more key, whose score is 0 and whose value is nothing.
pub(crate) fn softmax1<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
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

/// `1 / (1 + exp(-s))`, every key for itself.
pub(crate) fn sigmoid<E: Dtype>(scores: Heads<E>, mask: &Mask) -> Heads<E>
where
    Cpu: Device<E>,
{
    overwrite(scores.sigmoid(), mask, 0.0)
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
