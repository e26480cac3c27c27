//! Going on token by token: sessions of a model, and what to choose from its results.

mod cache;
mod error;
mod past;
mod reach;
mod session;
mod tokens;

pub use cache::Cache;
pub use error::SessionError;
pub use past::{InSession, Past};
pub use session::{Decoder, Decoding, Remembers, Session, Sessions};
pub use tokens::{NewTokens, Room, Span};

/// What the session of a model is that has none: a trait that nothing implements stands before it.
pub fn no_session<T>() -> T {
    unreachable!("a model that cannot go on has no session")
}
