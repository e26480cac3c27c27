//! The macro from inside: what it makes of tokens, without rustc.

mod body;
mod definitions;
mod depth;
mod effort;
mod formula;
mod header;
mod interpret;
mod lowering;
mod model;
mod passes;
mod property;
mod snapshots;
mod soup;
mod support;
mod tables;
mod valid_spec;
