//! Atomic writes of files.

use std::path::Path;

use super::VizError;
use crate::disk;

/// Writes a text file atomically, so that a reader sees the old drawing or the new one.
///
/// # Errors
/// [`VizError`] if a system call fails. The old file is still there then.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), VizError> {
    replace(path.as_ref(), text.as_bytes())
}

/// Replaces a file. The old one stays if this fails.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), VizError> {
    disk::replace(path, |file| {
        file.write_all(bytes).map_err(|error| VizError::File {
            path: path.into(),
            action: "write",
            error,
        })
    })
}
