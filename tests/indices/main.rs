//! Values by ids, and values without a gradient.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod computed;
mod detach;
mod gather;
mod losses;
mod selections;
mod sessions;
mod sums;

use attn::dfdx::prelude::*;
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, backpropagate};
use support::tensors;
