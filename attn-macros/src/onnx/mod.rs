//! Functions of a model as ONNX graphs.
//!
//! Each operation has its rule in `ops/`, as it has those of the other forms: an expression of ONNX operators of its operands. [`writer`] puts
//! them together to one text, which the program reads when it exports: a model that is never exported has one literal more. [`node`] is an
//! operation where it stands, [`expr`] writes expressions of elements and places, [`layer`] attentions, [`term`] the notation.

mod expr;
mod layer;
mod node;
mod term;
mod writer;

pub(crate) use node::OnnxNode;
pub(crate) use term::{Term, call, call_with, list};
pub(crate) use writer::{Tables, write};
