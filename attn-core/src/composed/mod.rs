//! Attention with dfdx operations. Projections are in [`ops`](crate::ops), with the linear layers.
//!
//! Each function is one operation of the graph that the macros build, with plain dfdx tensor operations: it runs on every
//! dfdx device, and dfdx's tape differentiates it. It is the readable definition of a layer.
//!
//! - [`split_heads`], [`merge_heads`]: between `[batch, len, heads * width]` and `[batch, heads, len, width]`.
//! - [`rms_norm`], [`l2_norm`], [`rope`]: transforms of queries and keys before the scores.
//! - [`dot_scores`], [`additive_scores`], [`bilinear`]: the scores; [`zero_scores`]: scores that do not depend on queries and keys.
//! - [`add`], [`mul`], [`tanh`], ...: elementwise score modifications.
//! - [`less`], [`and`], [`select`], ...: conditions, and choices by a condition.
//! - [`index_mask`], [`index_floats`], [`index_condition`], [`index_param`]: functions of the indices
//!   `(b, h, q_idx, kv_idx)`.
//! - [`softmax`], [`softmax1`], [`sink`], [`sparsemax`], [`entmax15`], [`identity`]: from scores to weights, with a [`ScoreMask`].
//! - [`softmax_lse`], [`softmax1_lse`], [`sink_lse`]: the logarithms of the sums that weights are divided by.
//! - [`mix_heads`]: scores or weights of heads that talk to each other.
//! - [`dropout`], [`attend`]: from weights to outputs.
//!
//! Query head `h` uses key and value head `h / (heads / kv_heads)`. Sizes of 0 are supported: dfdx's own operations panic on some empty
//! tensors, so each function returns early, and its inputs get a gradient of 0.

mod condition;
mod dropout;
mod elementwise;
mod heads;
mod index;
mod norm;
mod normalize;
mod rope;
mod scores;
mod sparse;
mod tensors;

pub use condition::{
    Condition, and, at_most, equal, guard, less, not, or, select, select_condition,
};
pub use dropout::dropout;
pub use elementwise::{
    abs, add, add_scalar, cos, div, exp, floor, fresh, ln, logistic, maximum, minimum, mul,
    mul_scalar, pow, rem, replace, sin, sqrt, sub, tanh,
};
pub use heads::{attend, merge_heads, mix_heads, split_heads};
pub use index::{
    DependsOn, ScoreMask, index_condition, index_floats, index_mask, index_param, integer_of, max,
    min, sigmoid_of,
};
pub use norm::{l2_norm, rms_norm};
pub(crate) use normalize::off_tape;
pub use normalize::{
    Rows as Lse, identity, sink, sink_lse, softmax, softmax_lse, softmax1, softmax1_lse,
};
pub use rope::rope;
pub(crate) use rope::{rotate, rotation_tables};
pub use scores::{additive_scores, bilinear, dot_scores, zero_scores};
pub use sparse::{entmax15, sparsemax};

pub(crate) use tensors::{conditions, depend, is_empty, reshape, zeros_after, zeros_after_both};
pub use tensors::{contiguous, filled};

use dfdx::{shapes::Const, tensor::Tensor};

/// One vector of width `W` per batch, head and position: `[batch, heads, len, width]`.
pub type Heads<B, const H: usize, S, const W: usize, E, D, T> =
    Tensor<(B, Const<H>, S, Const<W>), E, D, T>;

/// One number per batch, head, query and key: `[batch, heads, query, key]`.
pub type Scores<B, const H: usize, Q, K, E, D, T> = Tensor<(B, Const<H>, Q, K), E, D, T>;
