//! Training: the loss, and what happens to gradients and parameters between two backward passes.
//!
//! - [`cross_entropy`]: the loss of a classifier, a language model too, fused with its gradient; with ignored targets and
//!   label smoothing.
//! - [`AdamW`]: the optimizer of transformers. Unlike dfdx's `Adam`, it spares norms, biases and embeddings the weight decay,
//!   and its [state](AdamWState) can be saved.
//! - [`clip_grad_norm`], [`grad_norm`]: how long the gradients are, and an end to it.
//! - [`scale_grads`]: the mean over several batches, for steps on more examples than fit the memory at once.
//! - [`Cosine`], [`Noam`]: learning rates for each step, with a warm-up.
//!
//! They work on every [`TensorCollection`](dfdx::nn::TensorCollection): declared layers and models, dfdx's modules, tuples
//! of both. All of them change gradients and parameters in place, and name the parameters that have no gradient.
//!
//! ```
//! use attn_core::{nn::Linear, train::{AdamW, AdamWConfig, clip_grad_norm}};
//! use dfdx::prelude::*;
//!
//! let dev = Cpu::default();
//! let mut model = dev.build_module::<Linear<4, 1>, f32>();
//! let mut optimizer = AdamW::new(AdamWConfig { lr: 0.1, ..Default::default() });
//! let mut gradients = model.alloc_grads();
//! let x: Tensor<Rank2<8, 4>, f32, _> = dev.sample_normal();
//! let y: Tensor<Rank2<8, 1>, f32, _> = dev.ones();
//! let mut losses = Vec::new();
//! for step in 0..20 {
//!     let loss = mse_loss(model.forward_mut(x.trace(gradients)), y.clone());
//!     losses.push(loss.array());
//!     gradients = loss.backward();
//!     clip_grad_norm(&model, &mut gradients, 1.0)?;
//!     optimizer.config.lr = 0.1 * 0.9_f64.powi(step);
//!     optimizer.update(&mut model, &mut gradients)?;
//!     model.zero_grads(&mut gradients);
//! }
//! assert!(losses[19] < losses[0]);
//! # Ok::<(), attn_core::train::UpdateError<CpuError>>(())
//! ```
//!
//! # Gradient accumulation
//!
//! Gradients add up where they are handed on to the next forward pass instead of being set to zero, so a step on many
//! examples can be made of several passes on few:
//!
//! ```
//! use attn_core::{nn::Linear, train::{AdamW, clip_grad_norm, scale_grads}};
//! use dfdx::prelude::*;
//!
//! let dev = Cpu::default();
//! let mut model = dev.build_module::<Linear<4, 1>, f32>();
//! let mut optimizer = AdamW::new(Default::default());
//! let mut gradients = model.alloc_grads();
//! let batches = [(); 3].map(|()| {
//!     let x: Tensor<Rank2<8, 4>, f32, _> = dev.sample_normal();
//!     let y: Tensor<Rank2<8, 1>, f32, _> = dev.sample_normal();
//!     (x, y)
//! });
//! // One step on all 24 examples.
//! for (x, y) in &batches {
//!     let loss = mse_loss(model.forward_mut(x.trace(gradients)), y.clone());
//!     gradients = loss.backward();
//! }
//! scale_grads(&model, &mut gradients, 1.0 / batches.len() as f64)?;
//! clip_grad_norm(&model, &mut gradients, 1.0)?;
//! optimizer.update(&mut model, &mut gradients)?;
//! model.zero_grads(&mut gradients);
//! # Ok::<(), attn_core::train::UpdateError<CpuError>>(())
//! ```

mod adamw;
mod decay;
mod error;
mod gradients;
mod parameters;
mod schedule;
mod state;

pub use adamw::{AdamW, AdamWConfig};
pub use decay::ParameterInfo;
pub use error::UpdateError;
pub use gradients::{clip_grad_norm, grad_norm, scale_grads};
pub use schedule::{Cosine, Noam, Schedule};
pub use state::{AdamWState, Moments, StateError};

#[doc(no_inline)]
pub use crate::ops::{CrossEntropyOptions, cross_entropy, try_cross_entropy};
