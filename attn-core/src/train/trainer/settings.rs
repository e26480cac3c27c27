//! The settings of a trainer.

use super::{NonFinite, Trainable, Trainer};
use crate::{
    kernel::Dtype,
    train::{Algorithm, LearningRate, ParameterInfo, Schedule},
};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// Scales the gradients of a step so that their norm is at most this: see [`clip_grad_norm`](crate::train::clip_grad_norm). If it is negative or
    /// NaN, the next step returns [`UpdateError::Config`](crate::train::UpdateError::Config).
    ///
    /// PyTorch: `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`.
    #[doc(alias = "clip_grad_norm_")]
    pub fn clip(mut self, max_norm: f64) -> Self {
        self.clip = Some(max_norm);
        self
    }

    /// Sets the learning rate of each step. The settings of the algorithm now are the initial ones: see [`LearningRate::set_lr`]. If a
    /// [setting of the schedule](Schedule::check) is not allowed, the next step returns
    /// [`UpdateError::Config`](crate::train::UpdateError::Config).
    ///
    /// PyTorch: `LambdaLR(optimizer, ..)`, whose function returns a multiple of the rate, with `scheduler.step()` in each step.
    #[doc(alias("lr_scheduler", "LRScheduler"))]
    pub fn schedule(mut self, schedule: impl Schedule + Send + Sync + 'static) -> Self
    where
        A: LearningRate + Clone + Send + Sync + 'static,
    {
        let initial = self.optimizer.config.clone();
        let set = move |algorithm: &mut A, step| {
            let checked = schedule.check();
            checked.map(|()| algorithm.set_lr(schedule.rate(step), &initial))
        };
        self.schedule = Some(Box::new(set));
        self
    }

    /// Changes which parameters decay: see [`Optimizer::decaying`](crate::train::Optimizer::decaying).
    ///
    /// PyTorch: groups of parameters with `weight_decay=0`.
    #[doc(alias = "param_groups")]
    pub fn decaying(
        mut self,
        decays: impl Fn(&ParameterInfo<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.optimizer = self.optimizer.decaying(decays);
        self.choices = None;
        self
    }

    /// Gives settings of their own to the parameters whose names match a pattern: see [`Optimizer::group`](crate::train::Optimizer::group).
    ///
    /// ```
    /// # use attn::{prelude::*, train::AdamWConfig};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { let hidden = linear::<4>(x); linear::<1>(hidden) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let model = Cpu::default().build_module::<Net, f32>();
    /// let trainer = model
    ///     .trainer(AdamWConfig { weight_decay: 0.1, ..Default::default() })
    ///     .group("linear.*", |config| config.lr *= 0.1)
    ///     .group("linear_2.weight", |config| config.weight_decay = 0.0);
    /// # let _ = trainer;
    /// ```
    ///
    /// PyTorch: `AdamW([{"params": .., "lr": ..}, ..])`.
    #[doc(alias = "param_groups")]
    pub fn group(mut self, pattern: &str, change: impl Fn(&mut A) + Send + Sync + 'static) -> Self
    where
        A: Clone,
    {
        self.optimizer = self.optimizer.group(pattern, change);
        self.choices = None;
        self
    }

    /// The seed of dropout: 0 by default. PyTorch: `torch.manual_seed`.
    #[doc(alias = "manual_seed")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number type of the operands of matrix products, in steps and [evaluations](Self::evaluate). With [`Dtype::Bf16`], both operands of each product
    /// are rounded to bf16. Sums, biases, norms, softmax, the parameters and the lists of the optimizer stay in the type of the model. On a Zen 4, whose
    /// AVX-512 BF16 has twice the rate of `f32`, a step takes about 0.6 of the time. With the tiles of AMX, on an Intel Xeon of 2023 whose rate of tiles varied, it took 0.5 to 0.9 of the time. Without
    /// tiles the instruction of that Xeon is slow and is left out, and a step takes 1.1 to 1.2 times as long as in `f32`.
    ///
    /// Operands are rounded as they are read. So a `linear` layer rounds at these places:
    ///
    /// ```text
    /// y  = bf16(x) bf16(W)ᵀ + b
    /// dx = bf16(dy) bf16(W)        dW = bf16(dy)ᵀ bf16(x)        db = Σ rows of dy
    /// ```
    ///
    /// These are the products of `linear`, of projections of attentions, of `feed_forward` and gated ones, of a `linear` that is tied to an embedding, and of losses
    /// that compute their logits; and those of attention, of queries with keys and of weights with values, forward and backward, unless its scores are
    /// additive or its heads talk to each other. The hidden layer of a `feed_forward` reads its product, without the bias, rounded to bf16: that is kept for
    /// the derivative, and the memory of a step is `loss_activation_bytes_bf16(..)`. The page of a model has the places. Not rounded are `einsum`,
    /// convolutions, maps by group, and the steps of a `scan`, except for its attentions and the gradient of its weights.
    ///
    /// A product whose sums are `f32` has the same bits with AVX-512 BF16 and on processors without it, which take longer than with [`Dtype::Model`]. AMX adds
    /// products in another order; with `ATTN_SIMD=avx512` such a processor computes the bits of the others. The bits are the same for any
    /// number of threads. A checkpoint does not store this setting: set it again before resuming. [`model`](Self::model) returns the parameters
    /// without rounding.
    ///
    /// ```
    /// # use attn::prelude::*;
    /// use attn::train::{AdamWConfig, Dtype};
    /// # model! {
    /// #     struct Net<d = 4>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(gelu(linear::<8>(x))) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(pow(forward(x), 2)) }
    /// # }
    /// # let dev = Cpu::default();
    /// # let x: Tensor<Rank2<3, 4>, f32, _> = dev.sample_normal();
    /// let model = dev.build_module::<Net, f32>();
    /// let mut trainer = model.trainer(AdamWConfig::default()).dtype(Dtype::Bf16);
    /// trainer.step(x)?;
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `torch.autocast("cpu", dtype=torch.bfloat16)`, which rounds the results of products, too.
    #[doc(alias("autocast", "amp", "bfloat16", "mixed precision"))]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets how a step ends whose loss or gradient is infinite or NaN. Where this is an error, [`step`](Self::step) runs the batch once more as a
    /// chain of operations, with the same dropouts, and names the first operation that is not finite. Of several [ranks](Self::across), each
    /// looks in its own part of the batch, with dropouts that are not those of the whole batch.
    ///
    /// ```
    /// # use attn::{prelude::*, train::SgdConfig};
    /// model! {
    ///     struct Root<d = 2>;
    ///     fn forward(x: [batch, d]) -> [batch, 1] {
    ///         let y = linear::<1, bias = false>(x);
    ///         let root = sqrt(y - 100);
    ///         root
    ///     }
    ///     fn loss(x: [batch, d]) -> [] {
    ///         mean::<[batch, 1]>(forward(x))
    ///     }
    /// }
    ///
    /// let dev = Cpu::default();
    /// let mut trainer = dev.build_module::<Root, f64>().trainer(SgdConfig::default());
    /// let x: Tensor<Rank2<4, 2>, f64, _> = dev.ones();
    /// let error = trainer.step(x).unwrap_err().to_string();
    /// assert!(error.contains("forward: `root`, the result of `sqrt`, has the number NaN"), "{error}");
    /// ```
    ///
    /// PyTorch: `torch.autograd.set_detect_anomaly(True)`, which makes every step slower.
    #[doc(alias("set_detect_anomaly", "GradScaler"))]
    pub fn non_finite(mut self, non_finite: NonFinite) -> Self {
        self.non_finite = non_finite;
        self
    }
}
