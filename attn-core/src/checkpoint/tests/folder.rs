//! The checkpoints of a folder: the latest, the best, and those that are kept.

use std::fs;

use super::{Checkpoints, Problem, latest, names, save};

fn best(checkpoints: &Checkpoints) -> Option<(u64, f64)> {
    let best = checkpoints.best().unwrap();
    best.map(|(checkpoint, metric)| (checkpoint.step(), metric))
}

#[test]
fn a_missing_folder_has_no_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("a/b"));
    assert_eq!(latest(&checkpoints), None);
    assert_eq!(best(&checkpoints), None);
    assert!(checkpoints.steps().unwrap().is_empty());
    save(&checkpoints, 0, 7, None).unwrap();
    assert_eq!(latest(&checkpoints), Some((0, 7)));
}

#[test]
fn the_best_checkpoint_has_the_lowest_metric() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let saves = [
        (None, None),
        (Some(f64::NAN), None),
        (Some(0.1 + 0.2), Some((3, 0.1 + 0.2))),
        (Some(0.4), Some((3, 0.1 + 0.2))),
        (Some(f64::NAN), Some((3, 0.1 + 0.2))),
        (Some(f64::NEG_INFINITY), Some((6, f64::NEG_INFINITY))),
    ];
    for (step, (metric, expected)) in (1..).zip(saves) {
        save(&checkpoints, step, step, metric).unwrap();
        assert_eq!(best(&checkpoints), expected);
        // It is on the disk, so another process sees it.
        assert_eq!(best(&Checkpoints::new(folder.path())), expected);
        assert_eq!(latest(&checkpoints), Some((step, step)));
    }
}

#[test]
fn the_best_checkpoint_has_its_new_metric_after_it_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    save(&checkpoints, 1, 7, Some(0.5)).unwrap();
    save(&checkpoints, 1, 8, Some(0.6)).unwrap();
    assert_eq!(best(&checkpoints), Some((1, 0.6)));
    save(&checkpoints, 1, 9, None).unwrap();
    assert_eq!(best(&checkpoints), None);
    assert_eq!(latest(&checkpoints), Some((1, 9)));
    assert_eq!(names(folder.path()), ["latest", "step-00000001"]);
}

#[test]
fn the_best_and_the_latest_checkpoint_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path()).keep_last(2);
    let saves = [
        (1, 0.5, &[1][..]),
        (2, 0.3, &[1, 2]),
        (3, 0.4, &[2, 3]),
        (4, 0.4, &[2, 3, 4]),
        (500_000_000, 0.2, &[4, 500_000_000]),
        // Training continues from an earlier step.
        (3, 0.3, &[3, 4, 500_000_000]),
    ];
    for (step, metric, expected) in saves {
        save(&checkpoints, step, step, Some(metric)).unwrap();
        assert_eq!(checkpoints.steps().unwrap(), expected);
        assert_eq!(latest(&checkpoints), Some((step, step)));
    }
    let none = Checkpoints::new(folder.path()).keep_last(0);
    save(&none, 5, 5, None).unwrap();
    assert_eq!(none.steps().unwrap(), [5, 500_000_000]);
}

#[test]
fn a_checkpoint_that_the_user_removed_is_neither_latest_nor_best() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    save(&checkpoints, 1, 1, Some(0.5)).unwrap();
    save(&checkpoints, 2, 2, Some(0.1)).unwrap();
    fs::remove_dir_all(folder.path().join("step-00000002")).unwrap();
    assert_eq!(latest(&checkpoints), Some((1, 1)));
    assert_eq!(best(&checkpoints), None);
    save(&checkpoints, 3, 3, Some(0.4)).unwrap();
    assert_eq!(best(&checkpoints), Some((3, 0.4)));
}

#[test]
fn other_files_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let others = [
        ".step-1.tmp",
        ".hidden",
        "step-1",
        "step-00000001.bak",
        "notes",
        ".latest",
    ];
    for name in others {
        fs::write(folder.path().join(name), "").unwrap();
    }
    let checkpoints = Checkpoints::new(folder.path()).keep_last(1);
    save(&checkpoints, 1, 1, None).unwrap();
    save(&checkpoints, 2, 2, None).unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [2]);
    let found = names(folder.path());
    assert!(
        others
            .iter()
            .all(|name| found.iter().any(|found| found == name)),
        "{found:?}"
    );
}

#[test]
fn two_processes_do_not_save_to_one_folder_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    save(&checkpoints, 1, 1, None).unwrap();
    let lock = fs::File::open(folder.path().join(".lock")).unwrap();
    lock.lock().unwrap();
    let error = save(&checkpoints, 2, 2, None).unwrap_err();
    assert!(matches!(error.problem, Problem::Busy), "{error}");
    assert_eq!(latest(&checkpoints), Some((1, 1)));
    drop(lock);
    save(&checkpoints, 2, 2, None).unwrap();
}

#[test]
fn a_metric_of_nan_is_never_the_best() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    save(&checkpoints, 1, 7, Some(0.5)).unwrap();
    fs::write(folder.path().join("best"), "step-00000001 NaN\n").unwrap();
    assert_eq!(best(&checkpoints), None);
    save(&checkpoints, 2, 7, Some(0.75)).unwrap();
    assert_eq!(best(&checkpoints), Some((2, 0.75)));
}

#[test]
fn a_run_locks_its_folder_and_can_save() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("run"));
    let run = checkpoints.lock_run().unwrap();
    let refused = checkpoints
        .clone()
        .lock_run()
        .err()
        .map(|error| error.problem);
    assert!(matches!(refused, Some(Problem::Running)), "{refused:?}");
    save(&checkpoints, 1, 7, None).unwrap();
    assert_eq!(latest(&checkpoints), Some((1, 7)));
    drop(run);
    assert!(checkpoints.lock_run().is_ok());
}
