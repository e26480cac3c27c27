//! Attention at the steps of a scan: both forms agree, gradients are those of central differences, and sessions compute the same.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod formulas;
mod sessions;

use attn::dfdx::prelude::*;
use attn::{Backend, Element, model};
use claim::{agree, tolerance};
use support::cases::{lens_up_to, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::attends_at_steps!(agree);
