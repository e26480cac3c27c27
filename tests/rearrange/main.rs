//! Operations of `model!` that change shapes: axes that are split, merged and moved, values along a new axis, padding, shifts, windows, and
//! axes that are made of others. Both forms agree, gradients are correct, memory is what is promised, values are those of an independent
//! computation.
//!
//! The tests have a binary of their own, since all activations of a process are counted together.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod checked;
mod lengths;
mod merged;
mod mistakes;
mod moved;
mod sessions;
mod values;
mod views;

use attn::dfdx::prelude::*;
use checked::checked;
use support::cases::tensor;
use support::tensors::flat;

/// `0, 1, 2, ..`
fn numbers<S: Shape>(shape: S) -> Tensor<S, f64, Cpu> {
    let numbers = (0..shape.num_elements()).map(|number| number as f64);
    Cpu::default().tensor_from_vec(numbers.collect(), shape)
}
