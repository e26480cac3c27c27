//! A trainer's run in its folder, with [`Checkpoints::run`].

use std::path::Path;

use attn::{
    batches::RandomBlocks,
    checkpoint::{Checkpoints, Problem},
    dfdx::prelude::*,
    train::{FitConfig, FitEnd},
};

use crate::parts::{text, trainer};

/// Trains up to so many steps of 20, and returns the bits of the weights.
fn run(folder: &Path, resume: bool, stop: u64) -> Vec<u32> {
    let run = Checkpoints::new(folder).run(resume).unwrap();
    assert_eq!(run.last().is_some(), resume);
    let kept: Option<u64> = run.json("kept.json").unwrap();
    assert_eq!(kept, resume.then_some(7));
    let mut trainer = trainer();
    let mut state = run.load(&mut trainer).unwrap();
    let batches = RandomBlocks::new(text(), (2, 8), 5, &Cpu::default()).unwrap();
    let config = FitConfig {
        steps: 20,
        evaluate_every: 8,
        ..FitConfig::default()
    };
    let end = trainer
        .fit(config)
        .save(|trainer, state| run.save(state, trainer.contents().json("kept.json", &7_u64)))
        .stop_when(|state| state.step == stop)
        .run(batches.at(state.step).pairs(), &mut state)
        .unwrap();
    assert_eq!(end == FitEnd::Done, stop >= 20);
    let ids = Cpu::default().tensor_from_vec(vec![0, 1, 2], (1, 3));
    let logits = trainer.model().forward(ids).as_vec();
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn a_resumed_run_is_the_one_that_was_not_stopped() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(whole.path(), false, 20);
    for stop in [1, 8, 13] {
        let parts = tempfile::tempdir().unwrap();
        run(parts.path(), false, stop);
        assert_eq!(run(parts.path(), true, 20), expected);
        // A run that has ended goes on with no step.
        assert_eq!(run(parts.path(), true, 20), expected);
    }
}

#[test]
fn a_folder_that_does_not_fit_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("run");
    let problem = |resume| {
        Checkpoints::new(&folder)
            .run(resume)
            .err()
            .map(|e| e.problem)
    };
    assert!(matches!(problem(true), Some(Problem::HasNone)));
    assert!(!folder.exists());
    run(&folder, false, 1);
    assert!(matches!(problem(false), Some(Problem::HasRun)));
    let other = Checkpoints::new(&folder).lock_run().unwrap();
    assert!(matches!(problem(true), Some(Problem::Running)));
    drop(other);
    assert!(problem(true).is_none());
}
