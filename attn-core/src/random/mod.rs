//! Randomness that depends on a key and a place alone.
//!
//! A counter-based generator has no state: the number for a place is a function of the key and the place. So the
//! same dropout mask comes out whatever order, tiling or number of threads it is computed in, and again in the
//! backward pass without having been kept.

mod philox;

pub use philox::Philox4x32;
