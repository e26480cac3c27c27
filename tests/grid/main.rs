//! Attention of tokens on a grid.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod attend;
mod blocks;
mod errors;
mod forms;
mod models;
