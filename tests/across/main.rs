//! Blocks of other declarations: what they compute is what the same blocks compute in one declaration.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod crates;
mod modules;

use attn::{dfdx::prelude::*, memory, model};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{
    cases::{ids, tensor},
    compare::backpropagate,
    numbers::scattered,
    tensors::{self, flat},
};

/// All activations of the process are counted together: a test that counts waits for the others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets every parameter to numbers that depend on its name.
fn scatter<M: TensorCollection<f64, Cpu>>(model: &mut M) {
    tensors::fill(model, |name, values| {
        let numbers = scattered(name, values.len());
        numbers.iter().map(|number| 0.6 * number).collect()
    });
}

/// The names and sizes of all parameters.
fn named<M: TensorCollection<f64, Cpu>>(model: &M) -> Vec<(String, usize)> {
    let all = tensors::parameters(model).into_iter();
    all.map(|parameter| (parameter.name, parameter.values.len()))
        .collect()
}
