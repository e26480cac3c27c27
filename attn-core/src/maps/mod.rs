//! The weights of the attentions of a model: an [`AttentionMap`] for each.
//!
//! `attention_maps(x)` of a declared model returns one per attention, in the order in which they run. Weights only exist in the
//! composed form, so that is what runs: its memory grows with the square of the lengths.
//!
//! - `attention_map`: the weights, and what can be read from them.
//! - `recorder`: how they come out of a pass.

mod attention_map;
mod recorder;

pub use attention_map::{AttentionMap, MapError};
pub use recorder::{Attentions, attention_maps};
