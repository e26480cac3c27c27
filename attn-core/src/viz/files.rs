//! Files that are whole.

use std::path::Path;

use super::VizError;
use crate::disk;

/// Writes a file of text: whole, or not at all. So that who looks at a drawing meanwhile sees the one before.
///
/// # Errors
/// [`VizError`] if the system refuses. The file before is then still there.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), VizError> {
    replace(path.as_ref(), text.as_bytes())
}

/// Puts a new file in the place of the one before, which stays if this fails.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), VizError> {
    disk::replace(path, |file| {
        file.write_all(bytes).map_err(|error| VizError::File {
            path: path.into(),
            action: "write",
            error,
        })
    })
}
