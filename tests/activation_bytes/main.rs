//! `activation_bytes` of a model equals the bytes of its forward and backward pass exactly. The tests have a binary of their own,
//! since all activations of a process are counted together.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod attend;
mod indices;
mod layers;
mod networks;
mod rope;
mod scan;
