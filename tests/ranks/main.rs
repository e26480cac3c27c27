//! Training on several ranks, which are threads: their operations, steps against those of one process, and what ends them.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

mod bf16;
mod broken;
mod equal;
mod fit;
mod numbers;
mod operations;
mod overlap;
mod state;
mod training;

use attn::train::{Alone, Threads};

#[test]
fn threads_exchange() {
    for ranks in 1..=3 {
        for end in Threads::run(ranks, |mut rank| operations::run(&mut rank)) {
            end.unwrap().unwrap();
        }
    }
}

#[test]
fn one_rank_exchanges_with_itself() {
    operations::run(&mut Alone::default()).unwrap();
}
