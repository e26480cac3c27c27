//! Errors of data and batches.

use std::{io, path::PathBuf};

use super::width::TokenWidth;
use crate::disk::Failure;

/// Why tokens cannot be read or written, or not be cut into batches.
///
/// ```
/// use attn::{batches::RandomBlocks, dfdx::prelude::*};
///
/// let error = RandomBlocks::new(vec![1, 2, 3], (8, 16), 0, &Cpu::default()).unwrap_err();
/// assert_eq!(error.to_string(), "there are 3 tokens, too few for a block of 16 and the token after it");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The system refused an operation on a file.
    #[error("cannot {action} {path}: {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation: `open`, `read`, `write`, ..
        action: &'static str,
        /// The error of the system.
        error: io::Error,
    },

    /// The length of a file is not a multiple of the size of a token.
    #[error("{path} has {bytes} bytes, which are no whole tokens of {size} bytes", path = path.display(), size = width.bytes())]
    PartialToken {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The size of its tokens.
        width: TokenWidth,
    },

    /// A file has more tokens than this machine can count.
    #[error("{path} has {bytes} bytes, too many for this machine", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },

    /// There are more ranks than rows in a batch.
    #[error(
        "a batch of {batch} has no part for each of {ranks} ranks: take larger batches, or fewer ranks"
    )]
    Ranks {
        /// The number of its rows.
        batch: usize,
        /// The number of ranks.
        ranks: usize,
    },

    /// There is no such rank.
    #[error("there is no rank {rank} of {ranks}: they are counted from 0")]
    Rank {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
    },

    /// A file has no tokens.
    #[error("{path} is empty", path = path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },

    /// A token does not fit into the numbers of a file.
    #[error("token {index} is {token}, but {path} has numbers of {size} bytes, up to {greatest}", path = path.display(), size = width.bytes(), greatest = width.greatest())]
    Token {
        /// The file.
        path: PathBuf,
        /// The number of the token.
        index: usize,
        /// The token.
        token: usize,
        /// The size of the numbers.
        width: TokenWidth,
    },

    /// There are fewer tokens than a block needs.
    #[error(
        "{} {tokens} tokens, too few for a block of {block} and the token after it",
        has(path)
    )]
    TooShort {
        /// The file, if it is one.
        path: Option<PathBuf>,
        /// The number of tokens.
        tokens: usize,
        /// The length of a block.
        block: usize,
    },

    /// The numbers of a batch exceed any memory, or that of this machine.
    #[error("a batch of {batch} by {block} tokens does not fit into memory")]
    BatchTooLarge {
        /// The number of blocks, or of rows.
        batch: usize,
        /// The length of each.
        block: usize,
    },

    /// A size is 0.
    #[error("{what} is 0: at least 1 is needed")]
    Zero {
        /// The name of the size.
        what: &'static str,
    },
}

fn has(path: &Option<PathBuf>) -> String {
    match path {
        Some(path) => format!("{} has", path.display()),
        None => "there are".into(),
    }
}

impl From<Failure> for DataError {
    fn from(failure: Failure) -> Self {
        let Failure {
            path,
            action,
            error,
        } = failure;
        Self::Io {
            path,
            action,
            error,
        }
    }
}

/// Why a batch cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError<Dev> {
    /// Tokens cannot be read.
    #[error("{0}")]
    Data(DataError),

    /// dfdx failed, for example for lack of memory.
    #[error("{0}")]
    Device(Dev),
}
