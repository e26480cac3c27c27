//! The fused lowering, a layer as one operation of the tape: it computes what the composed one computes, a chain of dfdx's
//! operations, and keeps promises that such a chain cannot keep.
//!
//! `subject` declares a layer from its spec and makes it something that plain functions can run: what these find out about
//! it is in the other modules.

use support::compare;

#[macro_use]
mod subject;

mod agree;
mod differences;
mod poison;
mod tape;
mod threads;
