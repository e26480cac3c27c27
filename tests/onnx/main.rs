//! Models as ONNX files: another runtime computes what they compute here, at any sizes, from one file.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod cases;
mod networks;
mod refused;
