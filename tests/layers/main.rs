//! Layers declared with `attention!` compute the same as hand-written layers in plain dfdx: the same output, the same gradients
//! of every input and parameter, in `f32` and in `f64`, batched and unbatched, with lengths known at run time and at compile
//! time.
//!
//! `self_attention!` and `cross_attention!` pair a declared layer with a hand-written one, and `compare` compares their results.
//! `by_loops` compares the hand-written layers with loops over plain numbers, and `differences` compares the gradients of the
//! declared layers with central differences.

#[macro_use(cross_attention, self_attention)]
extern crate support;
use support::{
    compare,
    declared::{mask_of, masked},
};

mod by_loops;
mod differences;
mod heads;
mod normalizers;
mod scores;
