//! Scans of `model!`: loops over the steps along an axis.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod agree;
#[path = "../operations/claim.rs"]
mod claim;
mod edges;
mod keep;
mod parallel;
mod reads;
mod rows;
mod sessions;

use attn::dfdx::prelude::*;
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, Outcome, backpropagate};
