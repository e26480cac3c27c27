//! `dot(q, table[i])` in the body of an `attend`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod formula;
mod sessions;
mod spellings;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

support::dots!(agree);
