//! Buffers of a model: tensors of constants.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod forms;
mod tables;

use attn::{Backend, Element, dfdx::prelude::*, memory, model};
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{
    cases::{ids, tensor},
    compare::{Outcome, assert_same, backpropagate},
    numbers::scattered,
    tensors::{self, flat},
};

/// All activations of the process are counted together: a test that counts waits for the others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets every parameter to numbers that depend on its name.
fn scatter<E: Element, M: TensorCollection<E, Cpu>>(model: &mut M)
where
    Cpu: Backend<E>,
{
    tensors::fill(model, |name, values| {
        let numbers = scattered(name, values.len());
        numbers.iter().map(|number| 0.6 * number).collect()
    });
}
