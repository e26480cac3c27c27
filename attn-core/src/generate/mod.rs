//! Going on token by token: sessions of a model, and what to choose from its results.
//!
//! A model of tokens whose attentions look back only has a method `session`, and `sessions` for several sequences at once.
//! A session remembers the keys and values of the tokens so far, as much of them as the masks will look at again, so that a
//! token costs the products of one token and a look at that memory. What it says of a token is what the model says of the whole
//! sequence up to it. Whether a model has sessions, the macro finds out; if not, a call is a compile error that names the
//! attention and the key in the way.
//!
//! | | |
//! | --- | --- |
//! | [`Session`] | one sequence: `prefill`, `step`, `fork`, `reset` |
//! | [`Session::generate`] | an iterator of tokens, chosen by [`Sampling`] |
//! | [`Session::beam_search`] | the likeliest continuations |
//! | [`Sessions`] | several sequences of different lengths |
//! | [`Sampler`] | chooses a token, for loops of your own |
//!
//! - **Grouped heads** are remembered once per key head.
//! - **Windows** forget: a mask such as `sliding_window(256)`, alone or beside keys that are always seen, takes the memory of its
//!   window and of some more tokens, however long the sequence becomes. What will not be looked at again is found out from the
//!   mask itself, so it holds for a `fn mask` as well.
//! - **Positions** count from the start of the sequence, also when its start is forgotten: rotary, learned and sinusoidal
//!   ones, and biases. Keys are remembered rotated.
//! - **Weights** are those at the beginning of the session; copies of it share them.
//!
//! PyTorch: `model.generate(.., use_cache=True)` of `transformers`.

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
pub use past::{InSession, Past};
pub use sampling::{Sampler, Sampling, SamplingError};
pub use session::{Decoder, Decoding, Remembers, Session, Sessions};
pub use stream::{GenerateError, Generated};
pub use tokens::{NewTokens, Room, Span};

/// What the session of a model is that has none: a trait that nothing implements stands before it.
pub fn no_session<T>() -> T {
    unreachable!("a model that cannot go on has no session")
}
