//! Masks and positions: what declared layers make of the place of a query and a key is what layers written by hand make of it.

#[macro_use(cross_attention, self_attention)]
extern crate support;
use support::declared::{mask_of, masked};

mod declared_buckets;
mod masks;
mod positions;
