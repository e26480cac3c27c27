//! A process is killed during a save, at each of its operations: there is a complete checkpoint, the old or the new one.

use std::path::Path;

use super::{Checkpoints, assert_success, latest, names, run_child, save, task, text};
use crate::disk::faults;

/// Saves step 2, which replaces an older one or is new. `keep_last` lets step 1 be removed.
fn replaces_or_adds(folder: &Path, seed: u64) {
    save(&checkpoints(folder), 2, seed, Some(1.0 / seed as f64)).unwrap();
}

fn checkpoints(folder: &Path) -> Checkpoints {
    Checkpoints::new(folder).keep_last(1)
}

/// The test also runs as a child process with a task.
#[test]
fn a_complete_checkpoint_survives_a_kill_at_any_operation() {
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

/// The previous checkpoint is one of this step, with seed 7.
fn kill_at_each_operation(before: u64) {
    for count in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        save(&checkpoints(folder), before, 7, Some(0.5)).unwrap();
        let task = [text(folder), &count.to_string()];
        let test = "killed::a_complete_checkpoint_survives_a_kill_at_any_operation";
        let output = run_child(&[], test, &task);
        let found = latest(&checkpoints(folder)).unwrap();
        if output.status.success() {
            assert_success(&output);
            assert_eq!(found, (2, 8));
            // It was killed between the writes of each file, and at every other operation.
            assert!(count > 40, "{count}");
            return;
        }
        assert!(
            found == (before, 7) || found == (2, 8),
            "{count}: {found:?}"
        );
        // The next save completes or removes what the killed process began.
        replaces_or_adds(folder, 9);
        assert_eq!(latest(&checkpoints(folder)), Some((2, 9)));
        assert_eq!(names(folder), ["best", "latest", "step-00000002"]);
    }
}

/// Names are durable: the data is synced to the disk before its name.
#[test]
fn data_is_synced_before_it_is_renamed() {
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
    // The names of temporary files end with the process id and a counter.
    let without_number = |operation: &String| match operation.split_once(".tmp-") {
        Some((start, _)) => format!("{start}.tmp"),
        None => operation.clone(),
    };
    let operations: Vec<_> = operations.iter().map(without_number).collect();
    assert_eq!(operations, expected);
}
