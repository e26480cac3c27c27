//! Attention layers as a person writes them with dfdx alone: no part of `attn` is used here.
//!
//! - [`OneHeadAtATime`], [`AllHeadsAtOnce`], [`HeadsInTheBatch`] and [`AdditiveAttention`] are whole layers, each written
//!   in another of the ways in use;
//! - [`attention`] leaves the score and the normalizer to the caller, who composes them from `heads`, `masks`,
//!   `normalizers` and `positions`;
//! - [`naive`] is the same once more as loops over `f64`, to hold the others against.
//!
//! Everything here takes and returns batched tensors whose batch and lengths are known at run time.

mod additive;
mod all_heads_at_once;
mod composable;
mod heads_in_the_batch;
mod one_head_at_a_time;

pub(crate) mod heads;
pub(crate) mod masks;
pub(crate) mod naive;
pub(crate) mod normalizers;
pub(crate) mod parameters;
pub(crate) mod positions;

pub(crate) use additive::AdditiveAttention;
pub(crate) use all_heads_at_once::AllHeadsAtOnce;
pub(crate) use composable::{Split, attention, mix};
pub(crate) use heads_in_the_batch::HeadsInTheBatch;
pub(crate) use one_head_at_a_time::OneHeadAtATime;
pub(crate) use parameters::{Parameters, State};

use dfdx::prelude::*;

/// A tensor whose operations are recorded.
pub(crate) type Traced<S, E> = Tensor<S, E, Cpu, OwnedTape<E, Cpu>>;

/// `[batch, length, width]`, as it comes in: every use of it starts a tape of its own.
pub(crate) type Input<E> = Tensor<(usize, usize, usize), E, Cpu>;

/// `[batch, length, width]` on the way through a layer.
pub(crate) type Sequence<E> = Traced<(usize, usize, usize), E>;

/// `[batch, heads, length, width of one head]`; scores and weights are `[batch, heads, query, key]`.
pub(crate) type Heads<E> = Traced<(usize, usize, usize, usize), E>;

/// `[batch, query, key]`: true where the query may look at the key.
pub(crate) type Mask = Tensor<(usize, usize, usize), bool, Cpu>;

/// A number as an element.
pub(crate) fn number<E: Dtype>(value: f64) -> E {
    E::from_f64(value).expect("f32 and f64 hold every f64, rounded")
}
