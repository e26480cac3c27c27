//! Passes over strips of rows: reductions of the last axis with their neighbours, in both forms.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod dropped;
mod sizes;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};
use support::tensors;

support::rows!(agree);
