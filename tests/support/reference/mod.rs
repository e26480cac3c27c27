//! Hand-written attention layers in plain dfdx: no part of `attn` is used here.
//!
//! - [`OneHeadAtATime`], [`AllHeadsAtOnce`], [`HeadsInTheBatch`] and [`AdditiveAttention`] are whole layers, each in another
//!   common style;
//! - [`attention`] leaves the score and the normalizer to the caller, who composes them from `heads`, `masks`, `normalizers` and
//!   `positions`;
//! - [`naive`] is the same as loops over `f64`, the reference for the others.
//!
//! Everything here takes and returns batched tensors whose batch and lengths are known at run time.

mod additive;
mod all_heads_at_once;
mod composable;
mod heads_in_the_batch;
mod one_head_at_a_time;

pub mod heads;
pub mod masks;
pub mod naive;
pub mod normalizers;
pub mod parameters;
pub mod positions;

pub use additive::AdditiveAttention;
pub use all_heads_at_once::AllHeadsAtOnce;
pub use composable::{Split, attention, mix};
pub use heads_in_the_batch::HeadsInTheBatch;
pub use one_head_at_a_time::OneHeadAtATime;
pub use parameters::{Parameters, State};

use dfdx::prelude::*;

/// A tensor whose operations are recorded.
pub type Traced<S, E> = Tensor<S, E, Cpu, OwnedTape<E, Cpu>>;

/// `[batch, length, width]` of an input: every use starts a new tape.
pub type Input<E> = Tensor<(usize, usize, usize), E, Cpu>;

/// `[batch, length, width]` inside of a layer.
pub type Sequence<E> = Traced<(usize, usize, usize), E>;

/// `[batch, heads, length, width of one head]`; scores and weights are `[batch, heads, query, key]`.
pub type Heads<E> = Traced<(usize, usize, usize, usize), E>;

/// `[batch, query, key]`: true where the query may attend to the key.
pub type Mask = Tensor<(usize, usize, usize), bool, Cpu>;

/// A number as an element.
pub fn number<E: Dtype>(value: f64) -> E {
    E::from_f64(value).expect("f32 and f64 hold every f64, rounded")
}
