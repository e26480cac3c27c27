//! Models with `rope`, and attention to latents.

use super::*;
use support::cases::tensor;

support::ropes!(exact);
