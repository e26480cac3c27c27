//! Disks that are full or read-only.

use std::{fs, path::Path, process::Command};

use dfdx::prelude::*;

use super::{
    Checkpoints, Contents, Problem, assert_success, latest, names, run_child, save, task, text,
};
use crate::disk::faults;

/// At whichever operation the disk is full, saving fails, the previous checkpoint is still there, and there is space for another try.
#[test]
fn a_full_disk_at_any_operation_leaves_the_previous_checkpoint() {
    for count in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        save(&checkpoints, 1, 7, None).unwrap();
        faults::after(count, faults::Fault::Full);
        let saved = save(&checkpoints, 2, 8, Some(0.5));
        faults::none();
        let found = latest(&checkpoints).unwrap();
        let Err(error) = saved else {
            assert_eq!(found, (2, 8));
            assert!(count > 20, "{count}");
            return;
        };
        assert!(error.to_string().contains("no storage space"), "{error}");
        assert!(found == (1, 7) || found == (2, 8), "{count}: {found:?}");
        let names = names(folder.path());
        let hidden = names.iter().filter(|name| name.starts_with('.'));
        assert_eq!(hidden.count(), 0, "{names:?}");
        save(&checkpoints, 3, 9, None).unwrap();
        assert_eq!(latest(&checkpoints), Some((3, 9)));
    }
}

/// Saves weights of 66 kB, for which there is no space.
fn save_large(folder: &Path) {
    let model = Cpu::default().build_module::<Linear<128, 128>, f32>();
    let saved = Checkpoints::new(folder).save(2, &Contents::new().model(&model), Some(0.5));
    let error = saved.unwrap_err();
    assert!(error.path.ends_with("model.safetensors"), "{error}");
    assert!(
        matches!(
            error.problem,
            Problem::Io {
                action: "write",
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(latest(&Checkpoints::new(folder)), Some((1, 7)));
    assert_eq!(names(folder), ["latest", "step-00000001"]);
}

/// A process that may not write files longer than 1 or 2 kB: shells differ in the block size of `ulimit -f`.
#[test]
#[cfg(unix)]
fn a_file_size_limit_leaves_the_previous_checkpoint() {
    if let Some([folder]) = task().as_deref() {
        return save_large(Path::new(folder));
    }
    let folder = tempfile::tempdir().unwrap();
    save(&Checkpoints::new(folder.path()), 1, 7, None).unwrap();
    let test = "full_disk::a_file_size_limit_leaves_the_previous_checkpoint";
    // The signal is ignored, so that the write fails.
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$@\"";
    let output = run_child(&["sh", "-c", script, "sh"], test, &[text(folder.path())]);
    assert_success(&output);
    assert_eq!(latest(&Checkpoints::new(folder.path())), Some((1, 7)));
}

/// The command that runs a script in a private mount namespace. The script gets the folder as `$0`, and the program with its arguments
/// as `$@`.
#[cfg(target_os = "linux")]
fn in_namespace<'a>(script: &'a str, folder: &'a Path) -> [&'a str; 8] {
    let folder = text(folder);
    [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-ec",
        script,
        folder,
    ]
}

/// Whether this user may create mount namespaces. If not, the tests with file systems of their own are skipped.
#[cfg(target_os = "linux")]
fn can_mount() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let [program, words @ ..] = in_namespace("mount -t tmpfs tmpfs \"$0\"", folder.path());
    let output = Command::new(program).args(words).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_file_system_leaves_the_previous_checkpoint() {
    if let Some([folder]) = task().as_deref() {
        let folder = Path::new(folder);
        save(&Checkpoints::new(folder), 1, 7, None).unwrap();
        save_large(folder);
        save(&Checkpoints::new(folder), 3, 9, None).unwrap();
        assert_eq!(latest(&Checkpoints::new(folder)), Some((3, 9)));
    } else if can_mount() {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=64k tmpfs \"$0\"; exec \"$@\"";
        let test = "full_disk::a_full_file_system_leaves_the_previous_checkpoint";
        let words = in_namespace(script, folder.path());
        assert_success(&run_child(&words, test, &[text(folder.path())]));
    }
}

/// A read-only mount, not permissions: these do not restrict root.
#[test]
#[cfg(target_os = "linux")]
fn checkpoints_on_a_read_only_file_system_load() {
    if let Some([folder]) = task().as_deref() {
        let checkpoints = Checkpoints::new(folder);
        let error = save(&checkpoints, 2, 8, None).unwrap_err().to_string();
        assert!(error.contains("Read-only file system"), "{error}");
        assert_eq!(latest(&checkpoints), Some((1, 7)));
    } else if can_mount() {
        let folder = tempfile::tempdir().unwrap();
        save(&Checkpoints::new(folder.path()), 1, 7, None).unwrap();
        let script = "mount --bind \"$0\" \"$0\"; mount -o remount,ro,bind \"$0\"; exec \"$@\"";
        let test = "full_disk::checkpoints_on_a_read_only_file_system_load";
        let words = in_namespace(script, folder.path());
        assert_success(&run_child(&words, test, &[text(folder.path())]));
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = save(&Checkpoints::new(file.join("run")), 1, 7, None).unwrap_err();
    assert_eq!(error.path, file.join("run"));
    assert!(
        matches!(
            error.problem,
            Problem::Io {
                action: "create",
                ..
            }
        ),
        "{error}"
    );
}
