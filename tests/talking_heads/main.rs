//! Heads that talk to each other: both forms, their derivatives, the formula, sessions, and the memory that they take.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[macro_use(tests)]
extern crate support;

mod forms;
mod formula;
mod results;
mod sessions;
