//! Masks and positions: declared layers compute the same as hand-written ones.

#[macro_use(cross_attention, self_attention)]
extern crate support;
use support::declared::{mask_of, masked};

mod declared_buckets;
mod masks;
mod positions;
