//! The macro from inside: what it makes of tokens, without rustc.

mod body;
mod definitions;
mod interpret;
mod lowering;
mod model;
mod passes;
mod property;
mod random;
mod snapshots;
mod support;
mod tables;
