//! Training: the loss, and operations on gradients and parameters between two backward passes.
//!
//! - [`Trainer`]: whole steps of a model that declares its loss, without a tape. It clips, accumulates and sets the learning rate itself.
//!   Start here if your `model!` has a function `loss`. The examples on this page are for other models and losses.
//! - [`Trainer::fit`]: the loop around the steps, with evaluations, checkpoints, records and an early end. [`fit()`] is the same for steps of
//!   your own.
//! - [`cross_entropy`]: the loss of classifiers and language models, fused with its gradient, with ignored targets and label
//!   smoothing.
//! - [`AdamW`], [`Sgd`], [`Lion`], [`Adafactor`], [`Muon`], [`ScheduleFree`]: optimizers. Unlike those of dfdx, they apply no weight
//!   decay to biases, gains, learned positions and embeddings, and their [state](OptimizerState) can be saved. An [`Algorithm`] makes another one.
//! - [`Trainer::ema`]: a moving average of the parameters. [`Ema`] is the same for steps of your own.
//! - [`clip_grad_norm`], [`grad_norm`]: the norm of the gradients, and gradient clipping.
//! - [`scale_grads`]: the mean over several batches, for steps on more examples than fit into memory.
//! - [`Cosine`], [`Linear`], [`Constant`], [`Wsd`], [`Noam`]: learning rate schedules with a warm-up.
//!
//! Optimizers, [`Ema`] and the functions of gradients work on every [`TensorCollection`](dfdx::nn::TensorCollection): declared layers and
//! models, dfdx's modules, tuples of both. Optimizers and functions of gradients work in place, and report parameters without a gradient
//! by name.
//!
//! ```
//! use attn::{dfdx::prelude::*, nn::Linear, train::{AdamW, AdamWConfig, clip_grad_norm}};
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
//! # Ok::<(), attn::train::UpdateError<CpuError>>(())
//! ```
//!
//! # Gradient accumulation
//!
//! Gradients accumulate if they are passed to the next forward pass instead of being set to zero. So a step on many examples can
//! consist of several passes on a few each:
//!
//! ```
//! use attn::{dfdx::prelude::*, nn::Linear, train::{AdamW, clip_grad_norm, scale_grads}};
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
//! # Ok::<(), attn::train::UpdateError<CpuError>>(())
//! ```
//!
//! # Gradients by hand
//!
//! `backward` returns [`Gradients`](dfdx::tensor::Gradients), which are indexed by the tensor of a parameter: `get` copies its
//! gradient into a tensor, and `get_or_alloc_mut` returns the numbers for changes in place. Code that changes gradients comes
//! between `backward` and the step:
//!
//! ```
//! use attn::{dfdx::prelude::*, nn::Linear, train::AdamW};
//!
//! let dev = Cpu::default();
//! let mut model = dev.build_module::<(Linear<4, 4>, Linear<4, 1>), f32>();
//! let x: Tensor<Rank2<8, 4>, f32, _> = dev.sample_normal();
//! let mut gradients = model.forward(x.traced(model.alloc_grads())).square().mean().backward();
//!
//! // Read one.
//! let gradient: Tensor<Rank2<1, 4>, f32, _> = gradients.get(&model.1.weight);
//! println!("{:?}", gradient.array());
//!
//! // Clip every number of it, as `torch.nn.utils.clip_grad_value_` does.
//! for number in gradients.get_or_alloc_mut(&model.1.weight)?.iter_mut() {
//!     *number = number.clamp(-1e-3, 1e-3);
//! }
//! assert!(gradients.get(&model.1.weight).as_vec().iter().all(|number| number.abs() <= 1e-3));
//!
//! // Add a term: the gradient of `0.01 / 2 * weight²`.
//! let weight = model.1.weight.as_vec();
//! let sum: Vec<f32> = gradients.get(&model.1.weight).as_vec().iter().zip(&weight).map(|(g, w)| g + 0.01 * w).collect();
//! gradients.get_or_alloc_mut(&model.1.weight)?.copy_from_slice(&sum);
//!
//! // Leave a layer as it is: without a gradient, and without decay of its weights.
//! gradients.get_or_alloc_mut(&model.0.weight)?.fill(0.0);
//! gradients.get_or_alloc_mut(&model.0.bias)?.fill(0.0);
//! let before = model.0.weight.array();
//! let mut optimizer = AdamW::new(Default::default()).decaying(|parameter| !parameter.name.starts_with("0."));
//! optimizer.update(&mut model, &mut gradients)?;
//! assert_eq!(model.0.weight.array(), before);
//! assert_eq!(gradients.get(&model.1.weight).as_vec(), sum);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adafactor;
mod adamw;
mod algorithm;
mod collective;
mod decay;
mod ema;
mod error;
mod fit;
mod gradients;
mod lion;
mod muon;
mod optimizer;
mod parameters;
mod schedule;
mod schedule_free;
mod sgd;
mod state;
mod trainer;

pub use adafactor::{Adafactor, AdafactorConfig};
pub use adamw::{AdamW, AdamWConfig, AdamWState};
pub use algorithm::{Algorithm, InvalidSetting, LearningRate, List, ListSize, ListStart, Update};
#[cfg(feature = "mpi")]
pub use collective::Mpi;
pub use collective::{
    Alone, Call, Collective, CollectiveError, Message, Outgoing, Pending, Threads, processes,
};
pub use decay::ParameterInfo;
pub use ema::Ema;
pub use error::UpdateError;
pub use fit::{
    Fit, FitConfig, FitEnd, FitError, FitEvent, FitFailure, FitState, Learner, StepReport, fit,
};
pub use gradients::{clip_grad_norm, grad_norm, scale_grads};
pub use lion::{Lion, LionConfig};
pub use muon::{Muon, MuonConfig, MuonScale};
pub use optimizer::Optimizer;
pub use schedule::{Constant, Cosine, Linear, Noam, Schedule, Wsd};
pub use schedule_free::{ScheduleFree, ScheduleFreeConfig};
pub use sgd::{Sgd, SgdConfig};
pub use state::OptimizerState;
pub(crate) use state::Own;
pub(crate) use trainer::{AVERAGE, OfRank, RoundingErrors};
pub use trainer::{
    Averaged, Counted, NonFinite, TrainBatch, TrainError, TrainStep, Trainable, Trainer,
    TrainerParameter,
};

pub use crate::kernel::Dtype;
#[doc(no_inline)]
pub use crate::ops::{CrossEntropyOptions, cross_entropy, try_cross_entropy};
