//! Every operation of `model!`, and graphs of every form: both forms agree, and gradients are correct.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod agree;
mod by_name;
mod claim;
mod dropped;
mod elementwise;
mod graphs;
mod parts;
mod reduce;
mod shapes;

use attn::dfdx::prelude::*;
use support::cases::{ids, lens_up_to, marks, scatter, tensor};
use support::compare::{Backpropagated, Outcome, backpropagate};
use support::tensors;
