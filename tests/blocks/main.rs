//! Blocks of a model: what they compute is what the same statements compute where they are called.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod calls;
mod functions;
mod inlined;
mod names;
mod results;

use attn::dfdx::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{
    cases::{ids, tensor},
    numbers::scattered,
    tensors,
};

/// All activations of the process are counted together: a test that counts waits for the others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets every parameter to numbers that depend on its place among the others.
fn scatter<M: TensorCollection<f64, Cpu>>(model: &mut M) {
    let mut place = 0;
    tensors::fill(model, |_, values| {
        place += 1;
        let numbers = scattered(&place.to_string(), values.len());
        numbers.iter().map(|number| 0.6 * number).collect()
    });
}

/// The gradients of all parameters, in their order.
fn gradients<M: TensorCollection<f64, Cpu>>(
    model: &M,
    gradients: &Gradients<f64, Cpu>,
) -> Vec<Vec<f64>> {
    let all = tensors::gradients(model, gradients);
    all.into_iter().map(|parameter| parameter.values).collect()
}
