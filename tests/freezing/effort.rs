//! What is not computed of a model with frozen blocks. Each array of a pass counts in `memory::total`, so the claim needs no clock. It counts
//! for the whole process, of which this is the only test.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{
    dfdx::prelude::*,
    memory,
    train::{AdamWConfig, Trainer},
};

#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "other tests train the same models"
)]
mod models;

use models::*;

/// The bytes of all activations of a step.
fn bytes_of_step<M: Model>(trainer: &mut Trainer<M, AdamWConfig>) -> u64 {
    let before = memory::total();
    steps(trainer, 0..1);
    memory::total() - before
}

#[test]
fn the_backward_pass_ends_where_nothing_before_is_trained() {
    let bytes = |trained: usize| {
        let mut trainer = Gpt::<f64, Cpu>::trained_by(adamw())
            .freeze("*")
            .unfreeze("layer_norm.*");
        for block in 4 - trained..4 {
            trainer = trainer.unfreeze(&format!("blocks.{block}.*"));
        }
        bytes_of_step(&mut trainer)
    };
    let all = bytes_of_step(&mut Gpt::<f64, Cpu>::trained_by(adamw()));
    let [none, one, two, three, four] = [0, 1, 2, 3, 4].map(bytes);
    let round = two - one;
    assert!(round > 0);
    assert_eq!(one - none, round, "the last block alone");
    assert_eq!(three - two, round);
    assert_eq!(four - three, round, "the first block ends the pass");
    assert_eq!(all, four, "the gradients of tables are no activations");
    // A frozen round in the middle passes its gradient on.
    let mut middle = Gpt::<f64, Cpu>::trained_by(adamw())
        .freeze("*")
        .unfreeze("layer_norm.*")
        .unfreeze("blocks.0.*");
    let middle = bytes_of_step(&mut middle);
    assert!(three < middle && middle <= four);
    sums_of_frozen_parameters();
    assert_eq!(memory::allocated(), 0, "all memory went back");
}

/// An attention adds up no gradient that is not wanted.
fn sums_of_frozen_parameters() {
    let frozen = |pattern: &str| {
        let trainer = Sums::<f64, Cpu>::trained_by(adamw()).freeze(pattern);
        let mut trainer = trainer;
        let found = trainer.parameters().into_iter().filter(|of| of.frozen);
        let numbers: usize = found.map(|of| of.dims.iter().product::<usize>()).sum();
        (bytes_of_step(&mut trainer), 8 * numbers as u64)
    };
    let all = bytes_of_step(&mut Sums::<f64, Cpu>::trained_by(adamw()));
    for pattern in [
        "attention.*sink*",
        "talking.*sink*",
        "attention.*norm*",
        "talking.*norm*",
    ] {
        let (bytes, less) = frozen(pattern);
        assert!(less > 0, "{pattern}");
        assert_eq!(bytes + less, all, "{pattern}");
    }
}
