//! Training that goes on from a checkpoint.

use attn::checkpoint::{Checkpoints, LoadOptions, Problem};

use super::*;

type Small = Gpt<f64, Cpu>;

#[test]
fn a_checkpoint_goes_on_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let make = || {
        Small::trained_by(adamw())
            .freeze("blocks.1.*")
            .freeze("embedding.*")
    };
    let mut whole = make();
    steps(&mut whole, 0..2);
    checkpoints.save(2, &whole.contents(), None).unwrap();
    let expected = steps(&mut whole, 2..4);

    let mut again = make();
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    again.load(&checkpoint, LoadOptions::default()).unwrap();
    assert_eq!(steps(&mut again, 2..4), expected);
    assert_eq!(parameters(again.model()), parameters(whole.model()));
    assert_eq!(again.state(), whole.state());
}

/// What a parameter has kept before it was frozen is saved with it.
#[test]
fn parameters_that_were_trained_before_go_on_with_their_state() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut whole = Small::trained_by(adamw());
    steps(&mut whole, 0..1);
    whole.set_frozen("blocks.*", true).unwrap();
    steps(&mut whole, 1..2);
    checkpoints.save(2, &whole.contents(), None).unwrap();
    let thaw = |trainer: &mut Trainer<Small, AdamWConfig>| {
        steps(trainer, 2..3);
        trainer.set_frozen("blocks.*", false).unwrap();
        steps(trainer, 3..4)
    };
    let expected = thaw(&mut whole);
    let mut again = Small::trained_by(adamw()).freeze("blocks.*");
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    again.load(&checkpoint, LoadOptions::default()).unwrap();
    assert_eq!(thaw(&mut again), expected);
    assert_eq!(parameters(again.model()), parameters(whole.model()));
}

/// What no step has updated has no state, whatever the next step trains.
#[test]
fn a_checkpoint_between_unfreezing_and_the_next_step_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut whole = Small::trained_by(adamw()).freeze("blocks.*");
    steps(&mut whole, 0..2);
    whole.set_frozen("blocks.*", false).unwrap();
    checkpoints.save(2, &whole.contents(), None).unwrap();
    let expected = steps(&mut whole, 2..4);
    let mut again = Small::trained_by(adamw());
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    again.load(&checkpoint, LoadOptions::default()).unwrap();
    assert_eq!(steps(&mut again, 2..4), expected);
    assert_eq!(parameters(again.model()), parameters(whole.model()));
    assert_eq!(again.state(), whole.state());
}

#[test]
fn a_checkpoint_with_other_frozen_parameters_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut frozen = Small::trained_by(adamw()).freeze("embedding.*");
    steps(&mut frozen, 0..1);
    checkpoints.save(1, &frozen.contents(), None).unwrap();
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    let mut other = Small::trained_by(adamw());
    let before = parameters(other.model());
    let refused = other.load(&checkpoint, LoadOptions::default()).unwrap_err();
    assert!(
        matches!(&refused.problem, Problem::Frozen { name, found: true } if name == "embedding.weight")
    );
    let message = refused.to_string();
    let end = "`embedding.weight` was frozen, but the trainer has it trained: freeze the same parameters, or load the model alone";
    assert!(message.ends_with(end), "{message}");
    assert_eq!(parameters(other.model()), before);
    other.set_frozen("embedding.*", true).unwrap();
    other.load(&checkpoint, LoadOptions::default()).unwrap();
    assert_eq!(parameters(other.model()), parameters(frozen.model()));
    other.set_frozen("embedding.*", false).unwrap();
    steps(&mut other, 1..2);
}
