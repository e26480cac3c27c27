//! Parameters and layers.

mod learned_position;
mod weight;

pub use learned_position::{LearnedPosition, Sequence};
pub use weight::Weight;
