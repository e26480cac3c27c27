//! What functions of a model take and return.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod inputs;
mod results;
mod scalars;

use attn::dfdx::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::{
    cases::{ids, scatter, tensor},
    tensors,
};

/// All activations of the process are counted together: a test that counts waits for the others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gradients of all parameters, in their order.
fn gradients<M: TensorCollection<f64, Cpu>>(
    model: &M,
    gradients: &Gradients<f64, Cpu>,
) -> Vec<Vec<f64>> {
    let all = tensors::gradients(model, gradients);
    all.into_iter().map(|parameter| parameter.values).collect()
}
