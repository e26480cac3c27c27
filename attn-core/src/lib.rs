//! The run-time half of `attn`: the functions that the emitted code calls.
//!
//! Users import the facade crate `attn`, which re-exports the items that they need: [`Error`], the layers in [`nn`], and the
//! [`data`] that layers take.
//!
//! | Module | Contents |
//! | --- | --- |
//! | [`batches`] | batches for training, from files and lists of tokens |
//! | [`checkpoint`] | weights and the state of training on the disk |
//! | [`composed`] | attention with dfdx operations, one function per operation |
//! | [`data`] | arguments of a call: of `padding` and `document` masks, the `data` of a body, indices |
//! | [`entry`] | the call of a layer: checks, options, batch axis |
//! | [`fit`] | rustc's message about a wrong shape in a tuple of inputs |
//! | [`fused`] | a layer as one operation on the tape, over slices |
//! | [`init`] | initial values of parameters |
//! | [`kernel`] | computations over slices: tiled, vectorised, parallel, with derivatives |
//! | [`maps`] | the weights of the attentions of a model |
//! | [`model`] | the state of a forward pass, whose methods the code of a declared model calls |
//! | [`nn`] | parameters and layers: [`nn::Linear`], [`nn::LayerNorm`], [`nn::FeedForward`], .. |
//! | [`onnx`] | models as ONNX files |
//! | [`ops`] | the operations of those layers, as functions on tensors |
//! | [`testing`] | derivatives against differences, and modules against others |
//! | [`text`] | text as tokens |
//! | [`traced`] | rustc's message about `backward` without a tape |
//! | [`train`] | the trainer, optimizers, schedules, clipping, the loop of training |
//! | [`random`] | the counter-based generator behind dropout |
//! | [`simd`] | vectors of numbers and elementary functions over them, for the widest instruction set of the machine |
//! | [`memory`] | the memory of activations |
//! | [`sizes`] | arithmetic on sizes in constants, and on places |
//! | [`viz`] | pages, drawings and records of training |
//!
//! Shapes are written `[batch, heads, query, width]`. `B`, `Q`, `K`, `S` are sizes known at run time or compile time
//! ([`Dim`](dfdx::shapes::Dim)). All other sizes are constants. Everything is generic over [`Element`] and dfdx's
//! [`Device`](dfdx::tensor_ops::Device), and keeps the tape of its input.

// The type of a tensor is its documentation here: the names of its axes, in order.
#![allow(clippy::type_complexity)]
// In a test, `unwrap` is the right reaction to an error.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod backend;
// Batches and each of the two features use a part of it.
#[cfg_attr(not(feature = "safetensors"), allow(dead_code))]
mod disk;
mod element;
mod error;
mod facts;
mod field;
mod lora;
mod unoptimised;

pub mod batches;
#[cfg(feature = "safetensors")]
pub mod checkpoint;
pub mod composed;
pub mod data;
pub mod entry;
pub mod fit;
pub mod fused;
pub mod generate;
pub mod init;
pub mod kernel;
pub mod layers;
pub mod maps;
pub mod memory;
pub mod model;
pub mod nn;
pub mod onnx;
pub mod ops;
pub mod random;
pub mod simd;
pub mod sizes;
pub mod testing;
#[cfg(feature = "text")]
pub mod text;
pub mod traced;
pub mod train;
pub mod values;
#[cfg(feature = "viz")]
pub mod viz;

pub use backend::{Backend, Host};
pub use element::Element;
pub use error::{Error, unwrap};
pub use facts::{Constant, Facts};
pub use field::{InitialField, LinearFields, Numbered, NumberedRounds, visit_layer, visit_layers};
pub use fused::{backward, try_backward};
pub use lora::{Adapted, Lora};
pub use ops::linear::composed::project;
