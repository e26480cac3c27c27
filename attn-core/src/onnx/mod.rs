//! Models as ONNX files, which other runtimes read.
//!
//! Every function of a declared model that is not a loss has a method for it: `model.export_onnx(path)`, and for a function `encode`
//! beside `forward` `model.encode_export_onnx(path)`. PyTorch: `torch.onnx.export(model, inputs, path, dynamic_axes = ..)`.
//!
//! ```
//! use attn::{dfdx::prelude::*, model};
//!
//! model! {
//!     struct Gpt<d = 16>;
//!
//!     fn forward(tokens: ids[batch, seq]) -> [batch, seq, 11] {
//!         let mut x = embedding::<11, d>(tokens);
//!         repeat 2 {
//!             x += attention::<heads = 2, kv_heads = 1, mask = causal, position = rope>(rms_norm(x));
//!             x += feed_forward::<24, activation = swiglu>(rms_norm(x));
//!         }
//!         linear::<tied = embedding>(x)
//!     }
//! }
//!
//! let model = Cpu::default().build_module::<Gpt, f32>();
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("gpt.onnx");
//! model.export_onnx(&path)?;
//! # assert!(std::fs::metadata(&path)?.len() > 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```python
//! session = onnxruntime.InferenceSession("gpt.onnx")
//! output, = session.run(None, {"tokens": numpy.array([[1, 2, 3]])})
//! ```
//!
//! # The file
//!
//! - Inputs and outputs have the names of the declaration; the result is `output`, several without names `output_0`, `output_1`, ..
//!   Floats have the type of the weights, ids and lengths are `int64`, and masks `bool`. An input with a default is an input like the others.
//! - An axis of any length is a `dim_param` with its name in the declaration: one file runs at all sizes.
//! - The weights are initializers with the names that [`checkpoint::save`](crate::checkpoint::save) gives them. A tied weight is one initializer.
//! - The epsilon of a norm is the declared one, or the default: a value that a program changed in a struct is not exported.
//! - It is the model for inference: dropout is left out. `f32` and `f64` have the same graph. (onnxruntime has no `Erf` in `f64`, so a model with
//!   `gelu` runs there in `f32` alone. The tanh approximation runs in both.)
//! - Operators are those of version 18 of the standard set, with the intermediate representation 8: onnxruntime from 1.14 on reads it.
//! - A `grouped_linear`, and so a mixture of experts, computes the rows of all groups, and takes those that the ids choose: no operator has rows of
//!   several matrices.
//! - A query that attends to no key has the result 0, as here; ONNX's `Softmax` alone would give NaN.
//! - Ids that are too large are errors of the runtime. Lengths and ids are not checked against each other as a forward pass does.
//!
//! # What it has no words for
//!
//! Some operations have no counterpart in ONNX, or one that is out of proportion. [`OnnxError::Unsupported`] names the first one of a model:
//!
//! | operation | why, and what to do |
//! | --- | --- |
//! | `scan` | a loop with a number of steps that only the call knows: export the step as a function, and loop outside |
//! | `grouped_linear` with a `capacity_factor` | rows are dropped in the order of the call: export it without a capacity |
//! | `normalizer = sparsemax`, `entmax15` | their threshold needs all scores of a query in order: use `softmax` |
//! | `rope` with `scaling = dynamic_ntk` | its frequencies depend on the length: use `ntk`, `yarn` or `llama3` |
//! | `scatter_add` | runtimes differ in sums at equal indices: use `einsum` with the `one_hot` of the indices |
//! | `x[axis = ids]`, where `ids` have axes of `x` and several others | gather along one after the other |
//! | losses, such as `cross_entropy` | export a function that returns logits |
//! | `module` | its operations are unknown: write them in `model!` |
//!
//! A model costs nothing for being exportable: its graph is one literal in the program, which is read when it is exported.

mod graph;
mod program;
mod proto;

#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    io,
    path::{Path, PathBuf},
};

use dfdx::nn::TensorCollection;

use crate::{
    Backend, Element, disk,
    model::parameters::{self, Parameter},
};
use graph::{Graph, fields};
use proto::{DataType, Message};

#[doc(hidden)]
pub use program::Program;

/// A model that cannot be written as ONNX.
///
/// ```
/// use attn::{dfdx::prelude::*, model, onnx::OnnxError};
///
/// model! {
///     struct Sums;
///
///     fn forward(x: [batch, seq, 4]) -> [batch, seq, 4] {
///         attention::<heads = 2, normalizer = sparsemax>(x)
///     }
/// }
///
/// let error = Cpu::default().build_module::<Sums, f32>().export_onnx("sums.onnx").unwrap_err();
/// assert!(matches!(error, OnnxError::Unsupported { model: "Sums", .. }));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// An operation that cannot be written as ONNX.
    #[error("{model} cannot be exported to ONNX: {reason}")]
    Unsupported {
        /// The name of the model, and of the function if that is not `forward`.
        model: &'static str,
        /// The operation, where it stands, and what to do.
        reason: &'static str,
    },

    /// The file would be larger than protocol buffers may be.
    #[error(
        "{model} has {bytes} bytes as ONNX, and a file of that format has less than 2 GiB: export it in parts, as functions of the model"
    )]
    TooLarge {
        /// The name of the model.
        model: &'static str,
        /// The number of bytes.
        bytes: usize,
    },

    /// The operating system returned an error.
    #[error("{}: cannot {action}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        error: io::Error,
    },

    /// The macro wrote what this version of the crate does not read. It is a mistake of `attn`, which should be reported.
    #[error("the graph of {model} is malformed: please report this as a mistake of `attn`")]
    Malformed {
        /// The name of the model.
        model: &'static str,
    },
}

impl From<disk::Failure> for OnnxError {
    fn from(failure: disk::Failure) -> Self {
        let disk::Failure {
            path,
            action,
            error,
        } = failure;
        OnnxError::Io {
            path,
            action,
            error,
        }
    }
}

/// The version of the intermediate representation, and that of the set of operators.
const VERSIONS: [i64; 2] = [8, 18];

/// The file with a graph and its weights: what `export_onnx` of a declared model calls. The file replaces an existing one atomically.
///
/// # Errors
/// [`OnnxError`]. The file at `path` does not change then.
#[doc(hidden)]
pub fn export<M, E, D>(model: &M, program: Program<'_>, path: &Path) -> Result<(), OnnxError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Backend<E>,
{
    let [head, graph] = encode(model, program)?;
    let bytes = head.as_bytes().len() + graph.as_bytes().len();
    if i32::try_from(bytes).is_err() {
        return Err(OnnxError::TooLarge {
            model: program.model,
            bytes,
        });
    }
    disk::replace(path, |file| {
        let mut written = file.write_all(head.as_bytes());
        written = written.and_then(|()| file.write_all(graph.as_bytes()));
        written.map_err(|error| OnnxError::Io {
            path: path.into(),
            action: "write",
            error,
        })
    })
}

/// `ModelProto` in two parts, of which the second is the graph.
fn encode<M, E, D>(model: &M, program: Program<'_>) -> Result<[Message; 2], OnnxError>
where
    M: TensorCollection<E, D>,
    E: Element,
    D: Backend<E>,
{
    let text = program.text.map_err(|reason| OnnxError::Unsupported {
        model: program.model,
        reason,
    })?;
    let malformed = || OnnxError::Malformed {
        model: program.model,
    };
    let element = match size_of::<E>() {
        4 => DataType::Float,
        _ => DataType::Double,
    };
    let statements = program::parse(&program, text).ok_or_else(malformed)?;
    let graph = Graph::of(&program, &statements, element).ok_or_else(malformed)?;
    let Graph {
        mut message,
        weights,
        ..
    } = graph;
    let mut written = 0;
    let Ok(()) = parameters::for_each(model, |path, parameter| {
        if weights.contains(&path.name) {
            let dims = parameter.dims();
            let tensor = proto::tensor(&path.name, element, &dims, &bytes_of(parameter));
            message.message(fields::INITIALIZER, &tensor);
            written += 1;
        }
        Ok::<(), Infallible>(())
    });
    if written != weights.len() {
        return Err(malformed());
    }
    let [representation, operators] = VERSIONS;
    let mut set = Message::default();
    set.string(1, "").int(2, operators);
    let mut head = Message::default();
    head.int(1, representation);
    head.string(2, "attn").string(3, env!("CARGO_PKG_VERSION"));
    head.message(8, &set).head(7, message.as_bytes().len());
    Ok([head, message])
}

/// The numbers of a parameter, in little endian.
fn bytes_of<E: Element, D: Backend<E>>(parameter: &dyn Parameter<E, D>) -> Vec<u8> {
    let mut numbers = vec![E::ZERO; parameter.dims().iter().product()];
    // dfdx cannot read an empty tensor.
    if !numbers.is_empty() {
        parameter.read(&mut numbers);
    }
    let mut bytes = Vec::new();
    E::write_bytes(&numbers, &mut bytes);
    bytes
}
