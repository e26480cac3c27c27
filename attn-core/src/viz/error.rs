//! Errors of drawing and writing.

use std::{io, path::PathBuf};

use crate::disk::Failure;

/// Why something cannot be drawn or written.
///
/// ```
/// use attn::{maps::AttentionMap, viz::{Labels, Viewer}};
///
/// let map = AttentionMap::new("attention", [1, 1, 1, 2], vec![0.5, 0.5]);
/// let error = Viewer::new("").add(&map, &Labels::same([["a", "b"]])).err();
/// let message = error.map(|error| error.to_string());
/// assert_eq!(message.as_deref(), Some("`attention` has 1 queries in sequence 0, but 2 labels for them"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VizError {
    /// There are more labels than queries or keys.
    #[error("`{map}` has {expected} {axis} in sequence {sequence}, but {found} labels for them")]
    Labels {
        /// The name of the map.
        map: String,
        /// `queries` or `keys`.
        axis: &'static str,
        /// The sequence in the batch.
        sequence: usize,
        /// The number of labels.
        found: usize,
        /// The number of queries or keys.
        expected: usize,
    },

    /// There are labels for more sequences than the map has.
    #[error("`{map}` has {expected} {}, but there are labels for {found}", sequences(*expected))]
    Sequences {
        /// The name of the map.
        map: String,
        /// The number of sequences with labels.
        found: usize,
        /// The number of sequences.
        expected: usize,
    },

    /// The head or sequence does not exist.
    #[error("there is no {what} {index}: `{map}` has {len}")]
    Missing {
        /// The name of the map.
        map: String,
        /// `head` or `sequence`.
        what: &'static str,
        /// The requested index.
        index: usize,
        /// The number of heads or sequences.
        len: usize,
    },

    /// A chart cannot be drawn.
    #[error("the chart cannot be drawn: {reason}")]
    Chart {
        /// The reason.
        reason: String,
    },

    /// A system call failed.
    #[error("{}: cannot {action}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        error: io::Error,
    },

    /// A value of a record could not be read back.
    #[error("a record cannot have a value called `{name}`: {reason}")]
    Name {
        /// Its name.
        name: String,
        /// The reason.
        reason: &'static str,
    },

    /// A line of a file is not a record.
    #[error("{}: line {line} is not a record: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason.
        reason: String,
    },
}

fn sequences(count: usize) -> &'static str {
    match count {
        1 => "sequence",
        _ => "sequences",
    }
}

impl From<Failure> for VizError {
    fn from(failure: Failure) -> Self {
        let Failure {
            path,
            action,
            error,
        } = failure;
        Self::File {
            path,
            action,
            error,
        }
    }
}
