//! `attn::batches`: files of tokens, blocks, padding, samplers and packing.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

mod blocks;
mod packing;
mod padding;
mod sampler;
mod token_file;

use attn::dfdx::prelude::*;

type Ids = Tensor<(usize, usize), usize, Cpu>;

fn rows(ids: &Ids) -> Vec<Vec<usize>> {
    let (rows, seq) = *ids.shape();
    if rows == 0 {
        // dfdx reads a number of a tensor that has none.
        return Vec::new();
    }
    ids.as_vec().chunks(seq).map(Vec::from).collect()
}
