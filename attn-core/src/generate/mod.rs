//! Token-by-token generation: sessions of a model, and sampling from its logits. The page of the facade, `src/generate.md`,
//! describes their use.

mod batch;
mod beam;
mod cache;
mod cached_rows;
mod choice;
mod context;
mod decode_state;
mod decoder;
mod distribution;
mod error;
mod key_rows;
mod key_window;
mod memory;
mod pages;
mod recent;
mod sampling;
mod scan;
mod session;
mod sessions;
mod speculative;
mod stream;
#[cfg(feature = "text")]
mod text;
mod tokens;

#[cfg(test)]
mod tests;

pub use batch::GeneratedBatch;
pub use beam::{Beam, BeamSearch};
pub use cache::Cache;
pub use choice::Choice;
pub use context::{ContextCache, ContextState, DecodeWithContext};
pub use decode_state::{Decode, DecodeState};
pub use decoder::{Decoder, ModelDecoder, SequenceState, SequenceStates};
pub use error::SessionError;
pub use key_rows::KeyRows;
pub use memory::CacheMemory;
pub use recent::Recent;
pub use sampling::{Sampler, Sampling, SamplingError};
pub use scan::StateOfScan;
pub use session::Session;
pub use sessions::Sessions;
pub use speculative::{Acceptance, Speculative};
pub use stream::{Choices, GenerateError, Generated, Unconstrained};
#[cfg(feature = "text")]
pub use text::Written;
pub use tokens::{Capacity, NewTokens, Span};

pub use crate::{
    fused::{InexactRow, WeightReport},
    kernel::{Dtype, quantized::WeightFormat},
};

/// The session of a model that has none. Callers are guarded by a trait that nothing implements.
pub fn no_session<T>() -> T {
    unreachable!("a model that cannot go on has no session")
}
