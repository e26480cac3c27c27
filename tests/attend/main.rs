//! `attend` of `model!`: attention to given queries, keys and values.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod formulas;
mod layers;
mod sessions;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::attends!(agree);
