//! The weights of the attentions of a model: an [`AttentionMap`] for each.
//!
//! `attention_maps(x)` of a declared model returns one per attention, in the order in which they run. Weights only exist in the
//! composed form, so that is what runs: its memory grows with the square of the lengths.
//!
//! - `attention_map`: the weights, and what can be read from them.
//! - `attentions`: how they come out of a pass.

mod attention_map;
mod attentions;

pub use attention_map::{AttentionMap, MapError};
pub use attentions::{Attentions, attention_maps};
