//! Compatibility with files and programs of earlier versions.
//!
//! The folder `v0_1` belongs to the version that wrote it, and is never changed:
//!
//! - `run/` is a checkpoint of a small model, its optimizer and its vocabulary. It loads, and training continues with the losses
//!   in `losses.json`, which that version computed.
//! - `language.rs` has every word of the language of that version. It compiles. A spelling that changes moves from there into a
//!   case of `tests/ui/fail`, whose error names the new one, and CHANGELOG lists it.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod v0_1;
