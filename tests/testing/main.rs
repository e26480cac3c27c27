//! `attn::testing`: that wrong derivatives and differing modules are found and named, and right ones are not.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

mod compare;
mod gradients;
mod wrong;
