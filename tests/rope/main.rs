//! `rope` of `model!`: rotations of vectors by their positions.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod sessions;
mod values;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::ropes!(agree);
