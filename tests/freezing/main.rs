//! Frozen parameters: `freeze`, `unfreeze` and `set_frozen` of trainers and optimizers.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]
#![allow(
    unused_parens,
    clippy::double_parens,
    reason = "a macro writes one argument as it writes several"
)]

use attn::{
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, Optimizer, Trainer},
};
use support::{
    cases::{ids, scatter},
    tensors::parameters,
};

mod between;
mod checkpoints;
mod every_layer;
mod models;
mod places;
mod refused;

use models::*;
