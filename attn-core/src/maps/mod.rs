//! The attention weights of a model: one [`AttentionMap`] per attention.
//!
//! `attention_maps(x)` of a declared model returns the maps in the order of execution. It runs the composed form, the only one
//! that stores the weights, so its memory grows with the square of the lengths.
//!
//! - `attention_map`: the weights, and statistics of them.
//! - `recorder`: records them during a pass.

mod attention_map;
mod recorder;

pub use attention_map::{AttentionMap, MapError};
pub use recorder::{Attentions, Looked, Recorder, attention_maps};
