//! The weights of an attention of `model!`, and the logarithms of their sums, beside the attended values.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod formula;
mod losses;
mod promises;
mod sessions;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{scatter, tensor};
use support::close::assert_close;
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::attention_results!(agree);
