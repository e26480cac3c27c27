//! Random numbers as a function of a key and a position.
//!
//! A counter-based generator has no state: the number at a position is a function of the key and the position. So a dropout mask
//! does not depend on order, tiling or number of threads, and the backward pass recomputes it instead of reading a saved one.

mod part;
mod philox;
mod source;
mod words;

pub use part::{DrawSeeds, Part, Seed};
pub use philox::Philox4x32;
pub use source::RandomU64;
pub(crate) use source::drawing;
pub(crate) use words::{Subject, Words};
