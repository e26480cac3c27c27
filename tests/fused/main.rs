//! Properties of the fused form: its gradients are correct, it is one operation on the tape, masked tokens have no effect, and
//! the bits are the same for any number of threads.

#[macro_use(tests)]
extern crate support;
use support::{compare, subject};

mod differences;
mod poison;
mod tape;
mod threads;
