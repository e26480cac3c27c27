//! Tests of the macro from inside: its results for tokens, without rustc.

mod body;
mod definitions;
mod depth;
mod editor;
mod effort;
mod header;
mod interpret;
mod lowering;
pub(crate) mod model;
mod passes;
mod property;
mod random;
mod snapshots;
mod support;
mod tables;
