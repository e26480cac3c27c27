//! Inputs and data of every shape: what declared layers compute of them is what layers written by hand compute.

use support::{
    compare,
    declared::{mask_of, masked},
};

mod data;
mod edges;
mod inputs;
