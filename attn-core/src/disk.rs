//! Changes to the disk, in an order in which a crash at any moment leaves the old or the new.
//!
//! A file is written under another name, its bytes are forced to the disk, and only then it is renamed; renaming is atomic,
//! and is forced to the disk with the folder. Without the first, the name could survive a crash of the machine and the
//! bytes not.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// How many bytes are written at once: few in tests, which fail between any two writes.
const AT_ONCE: usize = if cfg!(test) { 100 } else { 1 << 20 };

/// The operation that the system refused.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) path: PathBuf,
    /// The operation: `create`, `write`, ..
    pub(crate) action: &'static str,
    pub(crate) error: io::Error,
}

/// Puts a new file in the place of the one before.
///
/// # Errors
/// An error of `write` or of the system, or something at `path` that is not a file. The file before is then still there.
pub(crate) fn replace<E: From<Failure>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    check_replaceable(path)?;
    let temporary = temporary(path);
    let written = create(&temporary, write).and_then(|()| {
        rename(&temporary, path)?;
        Ok(sync_folder(parent(path))?)
    });
    if written.is_err() {
        // The temporary file may not exist. If it cannot be removed, the first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Checks that there is a file, or nothing: renaming would replace a device or a pipe.
fn check_replaceable(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Failure {
            path: path.into(),
            action: "replace",
            error: io::Error::other("it is not a regular file"),
        }),
        // The writer reports everything else.
        _ => Ok(()),
    }
}

/// A name beside `path` that no other thread and no other process has.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}-{count}", process::id()))
}

/// Writes a file, down to the disk.
pub(crate) fn create<E: From<Failure>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let file = run(path, "create", || File::create(path))?;
    write(&mut Watched { file: &file, path })?;
    Ok(run(path, "sync", || file.sync_all())?)
}

/// Makes a folder, and those that it is in.
pub(crate) fn create_folder(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    run(path, "create", || fs::create_dir_all(path))?;
    sync_folder(parent(path))
}

/// Gives a file or a folder another name, and what had that name is gone, if it was a file.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    run(to, "rename", || fs::rename(from, to))
}

/// Removes a file, or a folder with all that is in it.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    run(path, "remove", || {
        if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    })
}

/// Waits until the names in a folder are on the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Failure> {
    // Elsewhere a folder cannot be opened, and the system keeps names in a journal.
    if cfg!(unix) {
        run(path, "sync", || File::open(path)?.sync_all())?;
    }
    Ok(())
}

/// The folder that something is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Every change to the disk passes through here, where tests let it fail.
fn run<T>(
    path: &Path,
    action: &'static str,
    f: impl FnOnce() -> io::Result<T>,
) -> Result<T, Failure> {
    let done = before(action, path).and_then(|()| f());
    done.map_err(|error| Failure {
        path: path.into(),
        action,
        error,
    })
}

/// A file whose every write tests can let fail.
struct Watched<'a> {
    file: &'a File,
    path: &'a Path,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        before("write", self.path)?;
        self.file.write(&bytes[..bytes.len().min(AT_ONCE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
pub(crate) mod faults;
#[cfg(test)]
use faults::before;

#[cfg(not(test))]
fn before(_action: &'static str, _path: &Path) -> io::Result<()> {
    Ok(())
}
