//! What happens to parameters between two steps of training.
//!
//! - [`AdamW`]: the optimizer of transformers. Unlike dfdx's `Adam`, it spares norms and biases the weight decay, and its
//!   state can be saved.
//! - [`clip_grad_norm`], [`grad_norm`]: how long the gradients are, and an end to it.
//! - [`Cosine`], [`Noam`]: learning rates for each step.
//!
//! All of them change gradients and parameters in place, and name the parameters that have no gradient.
//!
//! ```
//! use attn_core::{nn::Linear, optim::{AdamW, AdamWConfig, clip_grad_norm}};
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
//! # Ok::<(), attn_core::optim::UpdateError<CpuError>>(())
//! ```

mod adamw;
mod clip;
mod error;
mod parameters;
mod schedule;

pub use adamw::{AdamW, AdamWConfig, AdamWState, Moments};
pub use clip::{clip_grad_norm, grad_norm};
pub use error::UpdateError;
pub use schedule::{Cosine, Noam, Schedule};
