//! Shared helpers of all tests: numbers and tensors, hand-written layers in plain dfdx, comparison with stated tolerances.
//!
//! The package does not depend on `attn`, since it is the reference for it. So unit tests use it, too. Without the feature `dfdx`
//! it has numbers only.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "for tests: what unwraps fails where it should"
)]

pub mod adamw;
pub mod attend_cases;
pub mod axis_cases;
pub mod close;
pub mod differences;
pub mod dot_cases;
pub mod elementwise_cases;
pub mod expert_cases;
pub mod graph_cases;
pub mod index_cases;
pub mod initial;
pub mod layer_cases;
pub mod numbers;
pub mod product_cases;
pub mod reduce_cases;
pub mod rope_cases;
pub mod row_cases;
pub mod shape_cases;
pub mod step_cases;
pub mod value_cases;
pub mod waves;

#[cfg(feature = "dfdx")]
pub mod agreement;
#[cfg(feature = "dfdx")]
pub mod cases;
#[cfg(feature = "dfdx")]
pub mod compare;
#[cfg(feature = "dfdx")]
pub mod declared;
#[cfg(feature = "dfdx")]
pub mod gradients;
#[cfg(feature = "dfdx")]
pub mod onnx;
#[cfg(feature = "dfdx")]
pub mod parameters;
#[cfg(feature = "dfdx")]
pub mod reference;
#[cfg(feature = "dfdx")]
pub mod safetensors;
#[cfg(feature = "dfdx")]
pub mod subject;
#[cfg(feature = "dfdx")]
pub mod tensors;
