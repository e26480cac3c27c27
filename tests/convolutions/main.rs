//! Convolutions in `model!`: both forms agree, gradients are correct, memory is what is promised, mistakes have their errors.
//!
//! The tests have a binary of their own, since all activations of a process are counted together.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../rearrange/checked.rs"]
mod checked;
mod forms;
mod functions;
mod lengths;
mod sessions;

use attn::dfdx::prelude::*;
use checked::checked;
use support::cases::tensor;
