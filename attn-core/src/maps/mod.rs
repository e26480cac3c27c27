//! The attention weights of a model: one [`AttentionMap`] per attention.
//!
//! `attention_maps(x)` of a declared model returns the maps in the order of execution. It keeps all weights, so its
//! memory grows with the square of the lengths.
//!
//! - `attention_map`: the weights of an attention, and their statistics.
//! - `record`: the recording of the maps in a forward pass.

mod attention_map;
mod record;

pub use attention_map::{AttentionMap, MapError};
pub use record::attention_maps;
