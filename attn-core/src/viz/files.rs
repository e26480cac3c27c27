//! Files that are whole.

use std::path::Path;

use super::VizError;
use crate::disk;

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
