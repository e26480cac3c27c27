//! Layers declared with `attention!` compute what layers written by hand in plain dfdx compute: the same output, the
//! same gradient of every input and of every parameter, in `f32` and in `f64`, batched and unbatched, with lengths known
//! at run time and at compile time.
//!
//! In `self_attention!` and `cross_attention!` a declared layer meets its hand-written counterpart; what both compute is
//! compared by `compare`. In `by_loops` the hand-written layers are held against loops over plain numbers, and in
//! `differences` the declared layers' gradients against central differences.

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
