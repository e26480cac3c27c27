//! What the fused form promises beside its values: its gradients are slopes, it is one operation on the tape, keeps apart what is
//! masked, and gives the same bits for any number of threads.

#[macro_use(tests)]
extern crate support;
use support::{compare, subject};

mod differences;
mod poison;
mod tape;
mod threads;
