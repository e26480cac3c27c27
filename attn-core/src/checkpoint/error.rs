//! The errors of a file, of a folder, and of the weights in it.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    io,
    path::{Path, PathBuf},
};

use super::{TensorType, layout::MapError};
use crate::{disk::Failure, generate::SessionError, train::CollectiveError};

/// An error of a file or a folder.
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
    /// The operating system returned an error.
    #[error("cannot {action}: {error}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        error: io::Error,
    },

    /// The file is shorter than the length field of its header.
    #[error(
        "{bytes} bytes are not a safetensors file, which starts with 8 for the length of its header"
    )]
    TooShort {
        /// The length of the file.
        bytes: u64,
    },

    /// The file has another format.
    #[error("it is {format}, not a safetensors file: {advice}")]
    Format {
        /// The format of the file.
        format: &'static str,
        /// The way to convert it.
        advice: &'static str,
    },

    /// The header is longer than the file, or than the format allows.
    #[error("its header is said to be {found} bytes long, but can have {limit} at most")]
    HeaderLength {
        /// The length according to the start of the file.
        found: u64,
        /// The bytes that remain in the file, or the maximum of the format.
        limit: u64,
    },

    /// The header is not valid JSON of the expected form.
    #[error("its header is not valid: {reason}")]
    Header {
        /// The reason.
        reason: String,
    },

    /// The entry of a tensor in the header is invalid.
    #[error("tensor `{tensor}` is not described in a valid way: {reason}")]
    Entry {
        /// The tensor, or `__metadata__`.
        tensor: String,
        /// The reason.
        reason: String,
    },

    /// A parameter is frozen in the checkpoint and not in the trainer, or the other way round.
    #[error(
        "`{name}` was {}, but the trainer has it {}: freeze the same parameters, or load the model alone",
        frozen_or_not(*found), frozen_or_not(!*found)
    )]
    Frozen {
        /// The first such parameter.
        name: String,
        /// Whether it is frozen in the checkpoint.
        found: bool,
    },

    /// A shard of the optimizer's state is not there.
    #[error(
        "the shard `{name}` is missing: {ranks} ranks wrote this checkpoint, and it is whole with the files of all of them alone"
    )]
    Shard {
        /// The name of its file.
        name: String,
        /// How many ranks wrote the checkpoint.
        ranks: usize,
    },

    /// The shards of the optimizer's state are not of one checkpoint.
    #[error("it is not of the same step as the shards before it: take all files of one checkpoint")]
    OtherShard,

    /// A shard has the name of the file of another rank.
    #[error(
        "it is the shard of {}, in place of that of rank {expected}: give the files the names that they had",
        found.as_ref().map_or("no rank".into(), |rank| format!("rank {rank}"))
    )]
    OtherRank {
        /// The rank that its metadata name, from 0.
        found: Option<String>,
        /// The rank that its name says.
        expected: usize,
    },

    /// A file is not an index of weights in several files.
    #[error("it is not an index of safetensors files: {reason}")]
    Index {
        /// The reason.
        reason: String,
    },

    /// Files that an index names are not there.
    #[error("{} of its {count} files {} not there: {}", missing.len(), if missing.len() == 1 { "is" } else { "are" }, missing.join(", "))]
    MissingShards {
        /// Their names.
        missing: Vec<String>,
        /// How many files the index names.
        count: usize,
    },

    /// The files of an index have other tensors than it says.
    #[error(
        "its files have other tensors than it says: {}",
        others(missing, "not in").chain(others(elsewhere, "in")).collect::<Vec<_>>().join(", ")
    )]
    OtherIndex {
        /// Tensors that are not there, each with the file that the index names for it.
        missing: Vec<(String, String)>,
        /// Tensors that the index does not have in this file.
        elsewhere: Vec<(String, String)>,
    },

    /// Weights are in one file where several were to be written with an index, or the other way round.
    #[error(
        "it is there already, and would be read beside or in place of what is to be written: remove it, or give another folder"
    )]
    OtherWeights,

    /// A rank does not see the files of another one.
    #[error(
        "rank {rank} does not see what rank 0 wrote here: the folder must be on a file system that all ranks share"
    )]
    NotShared {
        /// The rank.
        rank: usize,
    },

    /// Another rank could not save or begin.
    #[error("rank {rank} has failed: {reason}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Its error.
        reason: String,
    },

    /// The ranks could not speak to each other.
    #[error("{0}")]
    Ranks(CollectiveError),

    /// A name occurs twice, in the header or in the model that is to be saved.
    #[error("`{name}` is there twice")]
    Duplicate {
        /// The name.
        name: String,
    },

    /// The bytes of a tensor do not start at the end of the tensor before, or they end before they start.
    #[error(
        "tensor `{tensor}` is said to be at bytes {} to {}, but starts at {expected}",
        found[0], found[1]
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// The end of the tensor before.
        expected: usize,
        /// The start and the end according to the header.
        found: [usize; 2],
    },

    /// The number of bytes of a tensor does not match its type and shape.
    #[error(
        "tensor `{tensor}`, {described}, is said to have {found} bytes, but takes {}",
        expected.map_or("more than there can be".into(), |bytes| bytes.to_string())
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Its type and its shape.
        described: TensorType,
        /// The number of bytes that they require; `None` if that is not an integer, or does not fit a `usize`.
        expected: Option<usize>,
        /// The number of bytes according to the header.
        found: usize,
    },

    /// The file does not end with its last tensor.
    #[error("its tensors have {expected} bytes, but {found} follow the header")]
    Length {
        /// The end of the last tensor.
        expected: u64,
        /// The length of the file.
        found: u64,
    },

    /// The checksum of the file does not match its contents.
    #[error("its checksum is {found}, but that of its contents is {expected}: it was damaged")]
    Checksum {
        /// The checksum of the contents.
        expected: String,
        /// The checksum in the file.
        found: String,
    },

    /// The tensors of the file are not those of the model.
    #[error("{0}")]
    Mismatch(Mismatch),

    /// A map between the names of a file and those of the model does not fit the model.
    #[error("{0}")]
    Map(MapError),

    /// No tensor of the file has the prefix of the map.
    #[error(
        "no tensor has a name that begins with {}; there are {}",
        list(.expected, |prefix| format!("`{prefix}`")),
        if .found.is_empty() { "none at all".into() } else { list(.found, |prefix| format!("`{prefix}`")) }
    )]
    Prefix {
        /// The prefixes of the names in the map.
        expected: Vec<String>,
        /// The prefixes of the names in the file, up to the first dot.
        found: Vec<String>,
    },

    /// A tensor is in the file under two names, with different numbers.
    #[error("{tensor} and {copy} are one tensor in the model, but have not the same numbers")]
    NotTied {
        /// The name of the tensor in the file.
        tensor: String,
        /// Its other name.
        copy: String,
    },

    /// The config of adapters is not that of the model.
    #[error("its adapters are not those of the model: {}", .0.join("; "))]
    Adapters(Vec<String>),

    /// The weights of a session are not rounded, or a file does not have such weights.
    #[error(
        "the weights are not rounded: `session.weights(..)` rounds them, `session.save_weights` writes those; `checkpoint::save` and `load` have the weights of a model"
    )]
    NotRounded,

    /// The weights of a session cannot be replaced.
    #[error("{0}")]
    Session(SessionError),

    /// Tensors that contain NaN, each with the number of NaNs.
    #[error("NaN among the numbers of {}", list(.0, |(tensor, count)| format!("{tensor} ({count} of them)")))]
    Nan(Vec<(String, usize)>),

    /// The type of a number of the model, such as the epsilon of a norm, cannot represent the value in the file.
    #[error("`{name}` is {value}, which is no {expected}")]
    Scalar {
        /// The name.
        name: String,
        /// The value in the file.
        value: f64,
        /// The type.
        expected: &'static str,
    },

    /// An optimizer's file has no valid step count.
    #[error(
        "it is not the state of an optimizer: its metadata have {} for the key `step`, not a number",
        found.as_deref().unwrap_or("nothing")
    )]
    Step {
        /// The value of the key.
        found: Option<String>,
    },

    /// The state of an optimizer is that of another algorithm.
    #[error(
        "it is the state of `{found}`, but the optimizer is `{expected}`: load it with `{found}`, or load the model alone to begin with `{expected}`"
    )]
    Algorithm {
        /// The name of the algorithm in the file.
        found: String,
        /// The name of the optimizer's algorithm.
        expected: &'static str,
    },

    /// A number of an optimizer's algorithm is none.
    #[error("`{key}` in the metadata is `{found}`, not a number")]
    Number {
        /// The key.
        key: String,
        /// Its value.
        found: String,
    },

    /// A value cannot be written as JSON, or JSON does not fit the type.
    #[error("{reason}")]
    Json {
        /// The reason.
        reason: String,
    },

    /// A name that is not allowed for a file of a checkpoint.
    #[error("{name:?} is not the name of a file")]
    FileName {
        /// The name.
        name: String,
    },

    /// Another process is saving to the folder.
    #[error("another process is saving here")]
    Busy,

    /// Another run has locked the folder.
    #[error("another run is using this folder")]
    Running,

    /// A new run was to begin in the folder of another one.
    #[error("there are checkpoints of a run already: resume it, or give another folder")]
    HasRun,

    /// A run was to be resumed from a folder without checkpoints.
    #[error("there is no checkpoint to resume from")]
    HasNone,
}

/// Tensors, each with its file.
fn others<'a>(
    tensors: &'a [(String, String)],
    place: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let words = move |(tensor, file): &(String, String)| format!("{tensor} is {place} {file}");
    tensors.iter().map(words)
}

impl Problem {
    /// The problem of a failed `action`.
    pub(super) fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { action, error }
    }

    /// The error of this path.
    pub(super) fn at(self, path: &Path) -> CheckpointError {
        CheckpointError {
            path: path.into(),
            problem: self,
        }
    }
}

fn frozen_or_not(is_frozen: bool) -> &'static str {
    match is_frozen {
        true => "frozen",
        false => "trained",
    }
}

/// All differences between the tensors of a file and those of a model.
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
    /// Tensors of the model that are not in the file.
    pub missing: Vec<(String, TensorType)>,
    /// Tensors of the file that are not in the model.
    pub extra: Vec<(String, TensorType)>,
    /// Tensors of both with different types or shapes.
    pub different: Vec<Difference>,
    /// The names and types in the model of the tensors that are missing or different, where a [map](super::layout) renames them.
    pub ours: BTreeMap<String, Vec<(String, TensorType)>>,
}

/// A tensor with different types or shapes in the file and in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name.
    pub tensor: String,
    /// The type and shape in the model.
    pub expected: TensorType,
    /// The type and shape in the file.
    pub found: TensorType,
}

impl Mismatch {
    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.different.is_empty()
    }

    /// The name and type in the model of a tensor of the file, if they differ from those in the file.
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
