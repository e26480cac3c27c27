//! Inputs and data of every shape: declared layers compute the same as hand-written ones.

use support::{
    compare,
    declared::{mask_of, masked},
};

mod data;
mod edges;
mod inputs;
