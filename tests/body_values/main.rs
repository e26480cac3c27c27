//! Values of a model that the body of an attention reads, with their gradients.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::body_values!(agree);
