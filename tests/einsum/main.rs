//! `einsum` and `as` of `model!`: products over axes by name.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod agree;
mod by_hand;
mod layers;
mod tensors_of_any_layout;

use attn::dfdx::prelude::*;
use support::cases::{scatter, tensor};
use support::compare::{Outcome, assert_same, backpropagate};
