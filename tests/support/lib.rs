//! What all tests share: numbers and tensors, layers written by hand in plain dfdx, comparison with stated tolerances.
//!
//! Nothing here knows `attn`: it is what `attn` is held against. So the unit tests of its parts can have it, too; without
//! the feature `dfdx`, it is numbers alone.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

pub mod adamw;
pub mod close;
pub mod differences;
pub mod initial;
pub mod numbers;
pub mod waves;

#[cfg(feature = "dfdx")]
pub mod agreement;
#[cfg(feature = "dfdx")]
pub mod cases;
#[cfg(feature = "dfdx")]
pub mod compare;
#[cfg(feature = "dfdx")]
pub mod declared;
#[cfg(feature = "dfdx")]
pub mod gradients;
#[cfg(feature = "dfdx")]
pub mod parameters;
#[cfg(feature = "dfdx")]
pub mod reference;
#[cfg(feature = "dfdx")]
pub mod subject;
#[cfg(feature = "dfdx")]
pub mod tensors;
