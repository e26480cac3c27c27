//! Changes to the disk, ordered so that a crash at any moment leaves the old or the new state.
//!
//! A file is written under another name, its bytes are synced to the disk, and only then it is renamed. Renaming is atomic and is
//! synced with the folder. Without the first sync, the name could survive a crash of the machine and the bytes could be lost.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
};

/// The number of bytes written at a time. It is small in tests, which fail between any two writes.
const AT_ONCE: usize = if cfg!(test) { 100 } else { 1 << 20 };

/// The operation that the system refused.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) path: PathBuf,
    /// The operation: `create`, `write`, ..
    pub(crate) action: &'static str,
    pub(crate) error: io::Error,
}

/// Replaces the file at `path` by a new one.
///
/// # Errors
/// An error of `write` or of the system, or an object at `path` that is not a regular file. The old file is still there then.
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

/// A name beside `path` that no other thread and no other process uses.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp-{}-{count}", process::id()))
}

/// Writes a file and syncs it to the disk.
pub(crate) fn create<E: From<Failure>>(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let file = run(path, "create", || File::create(path))?;
    write(&mut Watched { file: &file, path })?;
    Ok(run(path, "sync", || file.sync_all())?)
}

/// Creates a folder and its parents.
pub(crate) fn create_folder(path: &Path) -> Result<(), Failure> {
    let ancestors = path.ancestors().filter(|path| *path != Path::new(""));
    let missing: Vec<_> = ancestors.take_while(|path| !path.is_dir()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(path, "create", || fs::create_dir_all(path))?;
    let mut created = missing.into_iter().rev();
    created.try_for_each(|folder| sync_folder(parent(folder)))
}

/// Renames a file or a folder. A file with the new name is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    run(to, "rename", || fs::rename(from, to))
}

/// Removes a file, or a folder with its contents.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    run(path, "remove", || {
        if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        }
    })
}

/// Syncs the names in a folder to the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Failure> {
    // On other systems a folder cannot be opened, and a journal keeps the names.
    if cfg!(unix) {
        run(path, "sync", || File::open(path)?.sync_all())?;
    }
    Ok(())
}

/// The parent folder of `path`.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Runs a change of the disk. Every one passes through here, where tests let it fail.
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

/// Reads bytes from a place of a file, without the cursor of the file: several threads may read.
#[cfg(unix)]
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Reads bytes from a place of a file.
#[cfg(windows)]
pub(crate) fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads bytes from a place of a file. Handles of one file may share their cursor, so only one thread moves it at a time.
#[cfg(not(any(unix, windows)))]
pub(crate) fn read_at(mut file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    use std::sync::{Mutex, PoisonError};
    static CURSOR: Mutex<()> = Mutex::new(());
    let _moves_it = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}

/// A file whose writes pass through [`run`], so that tests can let each of them fail.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_each_new_folder_is_synced() {
        let folder = tempfile::tempdir().expect("a folder");
        faults::operations();
        let path = folder.path().join("a/b/c");
        create_folder(&path).expect("it is created");
        let name = folder.path().file_name().unwrap_or_default();
        let first = format!("sync {}", name.to_string_lossy());
        let expected = ["create c", &first, "sync a", "sync b"];
        assert_eq!(
            faults::operations(),
            expected[..if cfg!(unix) { 4 } else { 1 }]
        );
        create_folder(&path).expect("it is there");
        assert!(faults::operations().is_empty());
    }
}
