//! Inputs and data of every shape: what declared layers compute of them is what layers written by hand compute.

#[macro_use(cross_attention, self_attention)]
extern crate support;
use support::{
    compare,
    declared::{mask_of, masked},
};

mod data;
mod edges;
mod inputs;
