//! Checkpoints of several ranks, whose disks are full or which are killed at any operation.

use std::path::Path;

use super::{
    CheckpointError, Checkpoints, Contents, Problem, assert_success, latest, model, names,
    run_child, state, task, text,
};
use crate::{
    disk::faults::{self, Fault},
    train::{Collective, Own, Threads},
};

/// The parameters, their lengths, and how many of their numbers the first of two ranks has.
const PARAMETERS: [(&str, usize, usize); 4] = [
    ("0.weight", 6, 4),
    ("0.bias", 2, 0),
    ("1.gamma", 2, 1),
    ("1.beta", 2, 2),
];

/// Saves a checkpoint by two ranks. On one of them, an operation of the disk has a fault.
fn save(
    folder: &Path,
    step: u64,
    seed: u64,
    fault: Option<(usize, usize, Fault)>,
) -> Vec<Result<(), CheckpointError>> {
    let saved = Threads::run(2, |mut ranks| {
        let rank = ranks.rank();
        if let Some((_, count, fault)) = fault.filter(|(at, ..)| *at == rank) {
            faults::after(count, fault);
        }
        let (model, mut state) = (model::<f32>(seed), state(seed));
        let own = PARAMETERS.map(|(name, len, cut)| {
            let range = [0..cut, cut..len][rank].clone();
            // Numbers of the other rank from a step before do not count.
            let others = [cut..len, 0..cut][rank].clone();
            for (list, numbers) in &mut state.lists {
                if list.starts_with(name) {
                    numbers[others.clone()].fill(-1.0);
                }
            }
            (name.to_owned(), len, range)
        });
        let own = Own::new(own);
        let contents = Contents::new().model(&model);
        let contents = contents.across(&mut ranks).shard(&state, &own);
        let contents = contents.json("trainer_state.json", &seed);
        let checkpoints = Checkpoints::new(folder).keep_last(1);
        checkpoints.save(step, &contents, None).map(drop)
    });
    saved.into_iter().map(Result::unwrap).collect()
}

fn found(folder: &Path) -> Option<(u64, u64)> {
    latest(&Checkpoints::new(folder))
}

#[test]
fn a_full_disk_of_a_rank_at_any_operation_leaves_the_previous_checkpoint_and_names_the_rank() {
    for rank in 0..2 {
        for count in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            save(folder, 1, 7, None)
                .into_iter()
                .for_each(Result::unwrap);
            let saved = save(folder, 2, 8, Some((rank, count, Fault::Full)));
            if saved.iter().all(Result::is_ok) {
                assert_eq!(found(folder), Some((2, 8)));
                assert!(count > 5, "{count}");
                break;
            }
            for (of, saved) in saved.into_iter().enumerate() {
                let error = saved.unwrap_err();
                assert!(error.to_string().contains("no storage space"), "{error}");
                let is_own =
                    !matches!(error.problem, Problem::Rank { rank: named, .. } if named == rank);
                assert_eq!(is_own, of == rank, "{error}");
            }
            let is_old = found(folder) == Some((1, 7));
            assert!(
                is_old || rank == 0 && found(folder) == Some((2, 8)),
                "{count}"
            );
            save(folder, 3, 9, None)
                .into_iter()
                .for_each(Result::unwrap);
            assert_eq!(found(folder), Some((3, 9)));
            assert_eq!(names(folder), ["latest", "step-00000003"]);
        }
    }
}

/// The test also runs as a child process with a task, all ranks of which are killed with one.
#[test]
fn a_complete_checkpoint_survives_a_kill_between_the_shards() {
    if let Some([folder, rank, count]) = task().as_deref() {
        let fault = (rank.parse().unwrap(), count.parse().unwrap(), Fault::Kill);
        save(Path::new(folder), 2, 8, Some(fault));
        return;
    }
    for rank in 0..2 {
        for count in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            save(folder, 1, 7, None)
                .into_iter()
                .for_each(Result::unwrap);
            let task = [text(folder), &rank.to_string(), &count.to_string()];
            let test = "across::a_complete_checkpoint_survives_a_kill_between_the_shards";
            let output = run_child(&[], test, &task);
            let left = found(folder);
            if output.status.success() {
                assert_success(&output);
                assert_eq!(left, Some((2, 8)));
                assert!(count > 5, "{count}");
                break;
            }
            let is_new = rank == 0 && left == Some((2, 8));
            assert!(left == Some((1, 7)) || is_new, "{rank}, {count}: {left:?}");
            save(folder, 3, 9, None)
                .into_iter()
                .for_each(Result::unwrap);
            assert_eq!(names(folder), ["latest", "step-00000003"]);
        }
    }
}
