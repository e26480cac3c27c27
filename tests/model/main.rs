//! Networks declared with `model!`: against the same networks of other layers, against their composed form, and their other
//! properties.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod by_hand;
mod decoder;
mod differences;
mod dropout;
mod encoder_decoder;
mod facts;
mod facts_of_any_type;
mod forks;
mod initial;
mod maps;
mod mistakes;
mod norms;
mod opaque;
mod out_of_modules;
mod padding;
mod results;
mod session;
mod steps;
mod threads;

use attn::dfdx::prelude::*;
use support::cases::{ids, lens, marks, scatter, tensor};
use support::compare::backpropagate;
use support::numbers::scattered;
use support::tensors;
