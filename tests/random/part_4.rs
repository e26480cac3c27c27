//! Some of the models: see `part_0.rs`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[macro_use]
mod graph;
mod graphs_8;
mod graphs_9;
