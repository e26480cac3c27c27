//! What all tests share: numbers and tensors, layers written by hand in plain dfdx, comparison with stated tolerances.
//!
//! Nothing here knows `attn`: it is what `attn` is held against.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

pub mod adamw;
pub mod agreement;
pub mod cases;
pub mod compare;
pub mod declared;
pub mod initial;
pub mod parameters;
pub mod reference;
pub mod subject;
pub mod tensors;
pub mod waves;
