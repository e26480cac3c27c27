//! The errors of a file, a folder, or the weights in it.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
};

use super::{TensorType, layout::MapError};
use crate::{disk::Failure, train::StateError};

/// A file or a folder, and what is wrong with it.
///
/// ```
/// use attn::checkpoint::{CheckpointError, Problem};
///
/// let error = CheckpointError { path: "run/model.safetensors".into(), problem: Problem::TooShort { bytes: 3 } };
/// assert_eq!(error.to_string(), "run/model.safetensors: 3 bytes are not a safetensors file, which starts with 8 for the length of its header");
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct CheckpointError {
    /// The file, or the folder.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

impl From<Failure> for CheckpointError {
    fn from(failure: Failure) -> Self {
        let Failure {
            path,
            action,
            error,
        } = failure;
        Problem::Io { action, error }.at(&path)
    }
}

/// Problems of a file or a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The system refused.
    #[error("cannot {action}: {error}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        error: io::Error,
    },

    /// The file ends before its header's length does.
    #[error(
        "{bytes} bytes are not a safetensors file, which starts with 8 for the length of its header"
    )]
    TooShort {
        /// How long the file is.
        bytes: u64,
    },

    /// It is a file of another format.
    #[error("it is {format}, not a safetensors file: {advice}")]
    Format {
        /// The format of the file.
        format: &'static str,
        /// How its tensors get here.
        advice: &'static str,
    },

    /// The header is longer than the file, or than a header may be.
    #[error("its header is said to be {found} bytes long, but can have {limit} at most")]
    HeaderLength {
        /// The length at the start of the file.
        found: u64,
        /// The bytes that the file has left, or that a header may have.
        limit: u64,
    },

    /// The header as a whole is not the JSON that it must be.
    #[error("its header is not valid: {reason}")]
    Header {
        /// Why.
        reason: String,
    },

    /// The header's entry of a tensor is invalid.
    #[error("tensor `{tensor}` is not described in a valid way: {reason}")]
    Entry {
        /// The tensor, or `__metadata__`.
        tensor: String,
        /// Why.
        reason: String,
    },

    /// The header, or a model that is to be saved, has a name twice.
    #[error("`{name}` is there twice")]
    Duplicate {
        /// The name.
        name: String,
    },

    /// The bytes of a tensor do not start where those of the tensor before end, or end before they start.
    #[error(
        "tensor `{tensor}` is said to be at bytes {} to {}, but starts at {expected}",
        found[0], found[1]
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// Where the tensor before it ends.
        expected: usize,
        /// Where it is said to start and to end.
        found: [usize; 2],
    },

    /// The bytes of a tensor are not as many as its type takes.
    #[error(
        "tensor `{tensor}`, {described}, is said to have {found} bytes, but takes {}",
        expected.map_or("more than there can be".into(), |bytes| bytes.to_string())
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
        /// How many bytes these take; none if that is no whole number of them, or more than a `usize` can say.
        expected: Option<usize>,
        /// How many it is said to have.
        found: usize,
    },

    /// The file ends before the last tensor does, or after.
    #[error("its tensors have {expected} bytes, but {found} follow the header")]
    Length {
        /// Where the last tensor ends.
        expected: u64,
        /// The number that was found.
        found: u64,
    },

    /// The bytes are not those that were written.
    #[error("its checksum is {found}, but that of its contents is {expected}: it was damaged")]
    Checksum {
        /// The parsed contents.
        expected: String,
        /// The text that was found in the file.
        found: String,
    },

    /// The tensors are not those of the model.
    #[error("{0}")]
    Mismatch(Mismatch),

    /// A map between the names of a file and those of the model does not fit the model.
    #[error("{0}")]
    Map(MapError),

    /// The map is for a part that the file has not.
    #[error(
        "no tensor has a name that begins with {}; there are {}",
        list(.expected, |prefix| format!("`{prefix}`")),
        if .found.is_empty() { "none at all".into() } else { list(.found, |prefix| format!("`{prefix}`")) }
    )]
    Prefix {
        /// How the names in the map begin.
        expected: Vec<String>,
        /// How those in the file do, up to their first dot.
        found: Vec<String>,
    },

    /// A tensor of the model is in the file under two names, with other numbers.
    #[error("{tensor} and {copy} are one tensor in the model, but have not the same numbers")]
    NotTied {
        /// The name of the tensor in the file.
        tensor: String,
        /// Its other name.
        copy: String,
    },

    /// Tensors with NaN, each with how many.
    #[error("NaN among the numbers of {}", list(.0, |(tensor, count)| format!("{tensor} ({count} of them)")))]
    Nan(Vec<(String, usize)>),

    /// A number of the model, such as the epsilon of a norm, that its type cannot hold.
    #[error("`{name}` is {value}, which is no {expected}")]
    Scalar {
        /// The name.
        name: String,
        /// The value in the file.
        value: f64,
        /// The type.
        expected: &'static str,
    },

    /// An optimizer's file that does not say after how many steps it was saved.
    #[error(
        "it is not the state of an optimizer: its metadata have {} for the key `step`, not a number",
        found.as_deref().unwrap_or("nothing")
    )]
    Step {
        /// The value that was found there.
        found: Option<String>,
    },

    /// Lists of numbers that are not those of an optimizer.
    #[error("{0}")]
    State(StateError),

    /// A value is not what JSON can say, or JSON is not what the type can hold.
    #[error("{reason}")]
    Json {
        /// Why.
        reason: String,
    },

    /// A name that is not that of a file in a checkpoint.
    #[error("{name:?} is not the name of a file")]
    FileName {
        /// The name.
        name: String,
    },

    /// Another process saves to the folder, too.
    #[error("another process is saving here")]
    Busy,

    /// Another run has the folder.
    #[error("another run is using this folder")]
    Running,
}

impl Problem {
    /// The problem of a failed `action`.
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { action, error }
    }

    /// The problem of this file.
    pub(super) fn at(self, path: &Path) -> CheckpointError {
        CheckpointError {
            path: path.into(),
            problem: self,
        }
    }
}

/// Everything in which the tensors of a file are not those of the model.
///
/// ```
/// use attn::checkpoint::{Difference, Dtype, Mismatch, TensorType};
///
/// let matrix = |dtype| TensorType { dtype, shape: vec![2, 3] };
/// let mismatch = Mismatch {
///     missing: vec![("0.bias".into(), TensorType { dtype: Dtype::F32, shape: vec![2] })],
///     extra: vec![],
///     different: vec![Difference { tensor: "0.weight".into(), expected: matrix(Dtype::F32), found: matrix(Dtype::F16) }],
///     ..Mismatch::default()
/// };
/// assert_eq!(
///     mismatch.to_string(),
///     "its tensors are not those of the model\n  missing: 0.bias, F32 [2]\n  different: 0.weight, F16 [2, 3] instead of F32 [2, 3]",
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Tensors of the model that the file does not have.
    pub missing: Vec<(String, TensorType)>,
    /// Tensors of the file that the model does not have.
    pub extra: Vec<(String, TensorType)>,
    /// Tensors that both have, with different types or shapes.
    pub different: Vec<Difference>,
    /// For those that are missing or different, where a [map](super::layout) renames them: their names, and the names and types in
    /// the model.
    pub ours: BTreeMap<String, Vec<(String, TensorType)>>,
}

/// A tensor of another type or another shape than that of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its name.
    pub tensor: String,
    /// That of the model.
    pub expected: TensorType,
    /// That of the file.
    pub found: TensorType,
}

impl Mismatch {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.different.is_empty()
    }

    /// The name and type in the model of a tensor of the file, where they differ.
    fn in_the_model(&self, name: &str) -> String {
        let Some(ours) = self.ours.get(name) else {
            return String::new();
        };
        let ours = ours.iter().map(|(name, tensor)| format!("{name} {tensor}"));
        format!(", for {}", ours.collect::<Vec<_>>().join(" and "))
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its tensors are not those of the model")?;
        for (name, tensor) in &self.missing {
            write!(
                f,
                "\n  missing: {name}, {tensor}{}",
                self.in_the_model(name)
            )?;
        }
        for (name, tensor) in &self.extra {
            write!(f, "\n  extra: {name}, {tensor}")?;
        }
        for difference in &self.different {
            let Difference {
                tensor,
                expected,
                found,
            } = difference;
            let ours = self.in_the_model(tensor);
            write!(
                f,
                "\n  different: {tensor}, {found} instead of {expected}{ours}"
            )?;
        }
        Ok(())
    }
}

fn list<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<_>>().join(", ")
}
