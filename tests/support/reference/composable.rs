//! Attention with a score and a normalizer of the caller.

use super::{Heads, Input, Parameters, Sequence, heads};
use dfdx::prelude::*;

/// The number of heads of queries, and of keys and values.
#[derive(Clone, Copy)]
pub struct Split {
    pub heads: usize,
    pub kv_heads: usize,
}

impl Split {
    pub fn into_heads(heads: usize) -> Self {
        Self {
            heads,
            kv_heads: heads,
        }
    }

    /// Neighbouring query heads share a key and value head.
    pub fn sharing(heads: usize, kv_heads: usize) -> Self {
        Self { heads, kv_heads }
    }
}

/// Projects, splits into heads, scores, normalizes, mixes the values, joins and projects. Returns the output, and the weights as
/// `[batch, heads, query, key]`. `score` gets queries and keys with the number of query heads.
pub fn attention<E: Dtype>(
    parameters: &Parameters<'_, E>,
    split: Split,
    x: &Input<E>,
    context: &Input<E>,
    score: impl FnOnce(Heads<E>, Heads<E>) -> Heads<E>,
    normalize: impl FnOnce(Heads<E>) -> Heads<E>,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let q = parameters.project("q_proj", x.leaky_trace());
    let k = parameters.project("k_proj", context.leaky_trace());

    let group = split.heads / split.kv_heads;
    let q = heads::split(q, split.heads);
    let k = heads::repeat(heads::split(k, split.kv_heads), group);
    mix(parameters, split, context, normalize(score(q, k)))
}

/// Mixes the values by these weights, joins and projects. Returns the output and the weights.
pub fn mix<E: Dtype>(
    parameters: &Parameters<'_, E>,
    split: Split,
    context: &Input<E>,
    weights: Heads<E>,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let v = parameters.project("v_proj", context.leaky_trace());
    let v = heads::repeat(
        heads::split(v, split.kv_heads),
        split.heads / split.kv_heads,
    );
    let without_tape = weights.with_empty_tape();
    let output = parameters.project("o_proj", heads::join(weights.matmul(v)));
    (output, without_tape)
}
