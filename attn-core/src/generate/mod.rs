//! Going on token by token: sessions of a model, and what to choose from its results. The page of the facade, `src/generate.md`, says
//! how they are used.

mod beam;
mod cache;
mod distribution;
mod error;
mod past;
mod reach;
mod sampling;
mod session;
mod stream;
mod tokens;

#[cfg(test)]
mod tests;

pub use beam::{Beam, BeamSearch};
pub use cache::Cache;
pub use error::SessionError;
pub use past::{Decode, DecodeState};
pub use sampling::{Sampler, Sampling, SamplingError};
pub use session::{Decoder, Decoding, Remembers, Session, Sessions};
pub use stream::{GenerateError, Generated};
pub use tokens::{Capacity, NewTokens, Span};

/// The session of a model that has none. A trait that nothing implements stands before it.
pub fn no_session<T>() -> T {
    unreachable!("a model that cannot go on has no session")
}
