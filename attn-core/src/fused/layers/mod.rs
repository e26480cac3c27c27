//! Layers on slices: what they read of their parameters, forward and backward.
//!
//! An operation of [`ops`](crate::ops) is one of these on the tape; a declared model is many of them in one operation.
//! A result is written where the caller wants it, and gradients go to a [`Target`](super::Target) each.

mod feed_forward;
mod functions;
mod norm;
mod table;

pub use feed_forward::{FeedForward, Middle, feed_forward_footprint};
pub use functions::{
    activate, activate_backward, add, add_to, concat, concat_backward, dropout, dropout_backward,
    dropout_in_place, expand, expand_backward, expand_footprint, growing, mean_pool,
    mean_pool_backward, mul, mul_backward, scale, shift, sinusoidal_position, sinusoids, softmax,
    softmax_backward, sub,
};
pub use norm::{Norm, norm_footprint};
pub use table::Table;

pub use crate::kernel::dropout::{Dropout, Dropped};
