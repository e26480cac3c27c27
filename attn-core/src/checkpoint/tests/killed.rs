//! A process that is killed while it saves, at each of its operations: there is a whole checkpoint, the old or the new.

use std::path::Path;

use super::{Checkpoints, assert_success, latest, names, run_child, save, task, text};
use crate::disk::faults;

/// Saves step 2 in the place of an older one, or beside it. `keep_last` lets step 1 be removed.
fn replaces_or_adds(folder: &Path, seed: u64) {
    save(&checkpoints(folder), 2, seed, Some(1.0 / seed as f64)).unwrap();
}

fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints::new(folder).keep_last(1)
}

/// Run by itself, this is one of the processes.
#[test]
fn killed_at_any_moment_a_whole_checkpoint_is_there() {
    match task().as_deref() {
        Some([folder, count]) => {
            faults::after(count.parse().unwrap(), faults::Fault::Kill);
            replaces_or_adds(Path::new(folder), 8);
        }
        _ => {
            kill_at_each_operation(1);
            kill_at_each_operation(2);
        }
    }
}

/// The checkpoint before is one of this step, with seed 7.
fn kill_at_each_operation(before: u64) {
    for count in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        save(&checkpoints(folder), before, 7, Some(0.5)).unwrap();
        let task = [text(folder), &count.to_string()];
        let test = "killed::killed_at_any_moment_a_whole_checkpoint_is_there";
        let output = run_child(&[], test, &task);
        let found = latest(&checkpoints(folder)).unwrap();
        if output.status.success() {
            assert_success(&output);
            assert_eq!(found, (2, 8));
            // It was killed between the writes of each file, and everywhere else.
            assert!(count > 40, "{count}");
            return;
        }
        assert!(
            found == (before, 7) || found == (2, 8),
            "{count}: {found:?}"
        );
        // The next save ends what that one began.
        replaces_or_adds(folder, 9);
        assert_eq!(latest(&checkpoints(folder)), Some((2, 9)));
        assert_eq!(names(folder), ["best", "latest", "step-00000002"]);
    }
}

/// Who waits for the disk can rely on it: what a name names is there before the name is.
#[test]
fn a_name_is_given_to_what_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    faults::operations();
    save(&checkpoints, 3, 7, Some(0.5)).unwrap();
    let mut operations = faults::operations();
    operations.dedup();
    let folder = folder.path().file_name().unwrap().to_str().unwrap();
    let expected = [
        "create .step-00000003.tmp",
        &format!("sync {folder}"),
        "create model.safetensors",
        "write model.safetensors",
        "sync model.safetensors",
        "create optimizer.safetensors",
        "write optimizer.safetensors",
        "sync optimizer.safetensors",
        "create trainer_state.json",
        "write trainer_state.json",
        "sync trainer_state.json",
        "sync .step-00000003.tmp",
        "rename step-00000003",
        &format!("sync {folder}"),
        "create .latest.tmp",
        "write .latest.tmp",
        "sync .latest.tmp",
        "rename latest",
        &format!("sync {folder}"),
        "create .best.tmp",
        "write .best.tmp",
        "sync .best.tmp",
        "rename best",
        &format!("sync {folder}"),
    ];
    // The names of files that are replaced have the process and a count behind this.
    let without_number = |operation: &String| match operation.split_once(".tmp-") {
        Some((start, _)) => format!("{start}.tmp"),
        None => operation.clone(),
    };
    let operations: Vec<_> = operations.iter().map(without_number).collect();
    assert_eq!(operations, expected);
}
