//! Every operation of the language, and models of papers, compute what PyTorch computes from the same numbers.
//!
//! `generate.py` writes a file for each module: for each case the inputs, the parameters, the outputs, and the gradients of
//! [`weighted_sum`](support::compare::weighted_sum) of the outputs. A test declares the same model, and compares both forms.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[macro_use]
mod case;
mod attend;
mod attention;
mod complete;
mod convolutions;
mod elementwise;
mod indices;
mod layers;
mod models;
mod parts;
mod recurrent;
mod reductions;
mod selections;
