//! Promises of the documentation that are about what is not read, and what does not grow.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod cached;
mod masks;
mod scans;
mod sums;
mod weights;

use attn::{dfdx::prelude::*, model};
use support::cases::{scatter, tensor};
use support::compare::{assert_same, flat, weighted_sum};

type Traced<S> = Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>;
