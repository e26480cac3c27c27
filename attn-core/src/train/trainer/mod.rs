//! Training steps without a tape: the loss of a declared model, its gradients and the optimizer on slices.

mod across;
mod averaged;
mod counted;
mod error;
mod finite;
mod model;
mod parameters;
mod ranks;

use std::{cell::RefCell, collections::BTreeSet, convert::Infallible, fmt, rc::Rc, sync::Arc};

use dfdx::{
    shapes::Rank0,
    tensor::{NoneTape, SplitTape, Tensor},
};

use self::{
    across::{Across, Exchange, Share, Traffic},
    finite::{Search, parts},
    model::StepTape,
    parameters::Parameters,
};
use super::{
    Algorithm, LearningRate, Optimizer, OptimizerState, ParameterInfo, Schedule,
    ScheduleFreeConfig, UpdateError,
};
use super::{
    optimizer::{Choices, Target},
    parameters::for_each,
};
use crate::{
    Adapted, Backend, Element,
    fused::{Operation, StepSeeds},
    kernel::Dtype,
};

pub(crate) use across::{OfRank, RoundingErrors};
pub(crate) use averaged::AVERAGE;
pub use averaged::Averaged;
pub use counted::Counted;
pub use error::{NonFinite, TrainError, TrainStep};
pub(super) use model::ErrOf;
pub use model::{TrainBatch, Trainable};

/// Trains a model whose `model!` has a function `loss` with one number as its result.
///
/// [`step`](Self::step) is a whole step: forward, loss, backward, [clipping](Self::clip), and the optimizer. The trainer owns the model and
/// the optimizer's state. Parameters and gradients are in memory of its own, where forward, backward and the optimizer read and write them
/// in place: nothing is copied, and there is no tape. [`model`](Self::model) returns the model with the current parameters.
///
/// ```
/// use attn::prelude::*;
/// use attn::train::{AdamWConfig, Cosine};
///
/// model! {
///     struct Regression<d = 4>;
///     fn forward(x: [batch, d]) -> [batch, 1] {
///         linear::<1>(gelu(linear::<8>(x)))
///     }
///     fn loss(x: [batch, d], target: [batch, 1]) -> [] {
///         mean::<[batch, 1]>(pow(forward(x) - target, 2))
///     }
/// }
///
/// let dev = Cpu::default();
/// let mut trainer = dev
///     .build_module::<Regression, f32>()
///     .trainer(AdamWConfig { lr: 0.02, ..Default::default() })
///     .clip(1.0)
///     .schedule(Cosine { highest: 0.02, lowest: 0.002, warm_up: 5, steps: 50 });
/// let x: Tensor<Rank2<16, 4>, f32, _> = dev.sample_normal();
/// let target: Tensor<Rank2<16, 1>, f32, _> = dev.sample_normal();
/// let before = trainer.evaluate((x.clone(), target.clone()))?;
/// for _ in 0..50 {
///     let step = trainer.step((x.clone(), target.clone()))?;
///     println!("{} {} {}", step.step, step.loss, step.grad_norm);
/// }
/// assert!(trainer.evaluate((x.clone(), target))? < before);
/// let y = trainer.model().forward(x);
/// # let _: Tensor<Rank2<16, 1>, f32, _> = y;
/// # Ok::<(), attn::train::TrainError<CpuError>>(())
/// ```
///
/// The same in PyTorch:
///
/// ```text
/// optimizer.zero_grad()
/// loss = model.loss(x, target)
/// loss.backward()
/// torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
/// optimizer.step()
/// scheduler.step()
/// ```
///
/// A parameter that the loss does not read has no gradient. It is left alone, without decay, as PyTorch does if `p.grad is None`. Fields with
/// the same tensor, because one is a clone of the other, have the sum of their gradients, and take the same steps.
///
/// Dropout is a function of the [seed](Self::seed), the number of the step, and that of the batch in it.
#[doc(alias("training loop", "Lightning", "TrainState"))]
pub struct Trainer<M: Trainable, A> {
    model: M,
    optimizer: Optimizer<M::Element, A>,
    parameters: Option<Parameters<M::Element>>,
    /// How each parameter is updated, if it is known. It changes with the rules for names, and with the settings of the algorithm.
    choices: Option<Choices>,
    /// Whether the parameters have changed since they were copied into the model.
    has_news: bool,
    clip: Option<f64>,
    schedule: Option<Box<SetRate<A>>>,
    seed: u64,
    /// The dtype of the operands of the products of a step.
    dtype: Dtype,
    non_finite: NonFinite,
    /// The share of the average of the parameters that stays in a step, if there is one.
    ema: Option<f64>,
    /// The losses of the batches since the last step, and their weights.
    losses: Vec<(f64, f64)>,
    /// The number of targets of the first of these batches, whose weight is 1.
    first_targets: usize,
    /// The first operation of them that is not finite.
    first: Option<Search<M>>,
    /// The other ranks, if there are some.
    across: Option<Across<M::Element>>,
    /// Whether the state is a share of that of ranks that are no longer there.
    has_share: bool,
    /// How ranks exchange gradients.
    traffic: Traffic,
}

/// A parameter of the model of a [`Trainer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrainerParameter {
    /// The name under which it is saved.
    pub name: String,
    /// Its sizes.
    pub dims: Vec<usize>,
    /// Whether steps leave it alone: see [`Trainer::freeze`].
    pub frozen: bool,
}

/// Sets the learning rate of a step.
type SetRate<A> = dyn Fn(&mut A, u64) + Send + Sync;

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// A trainer before its first step. `model.trainer(algorithm)` is the same.
    pub fn new(model: M, algorithm: A) -> Self {
        const { averaged::check_lists(A::LISTS) };
        Self {
            model,
            optimizer: Optimizer::new(algorithm),
            parameters: None,
            choices: None,
            has_news: false,
            clip: None,
            schedule: None,
            seed: 0,
            dtype: Dtype::default(),
            non_finite: NonFinite::default(),
            ema: None,
            losses: Vec::new(),
            first_targets: 0,
            first: None,
            across: None,
            has_share: false,
            traffic: Traffic::default(),
        }
    }

    /// Scales the gradients of a step so that their norm is at most this: see [`clip_grad_norm`](super::clip_grad_norm). If it is negative or
    /// NaN, the next step returns [`UpdateError::Config`].
    ///
    /// PyTorch: `torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`.
    #[doc(alias = "clip_grad_norm_")]
    pub fn clip(mut self, max_norm: f64) -> Self {
        self.clip = Some(max_norm);
        self
    }

    /// Sets the learning rate of each step. The settings of the algorithm now are the initial ones: see [`LearningRate::set_lr`].
    ///
    /// PyTorch: `LambdaLR(optimizer, ..)`, whose function returns a multiple of the rate, with `scheduler.step()` in each step.
    #[doc(alias("lr_scheduler", "LRScheduler"))]
    pub fn schedule(mut self, schedule: impl Schedule + Send + Sync + 'static) -> Self
    where
        A: LearningRate + Clone + Send + Sync + 'static,
    {
        let initial = self.optimizer.config.clone();
        let set = move |algorithm: &mut A, step| algorithm.set_lr(schedule.rate(step), &initial);
        self.schedule = Some(Box::new(set));
        self
    }

    /// Changes which parameters decay: see [`Optimizer::decaying`].
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

    /// Gives settings of their own to the parameters whose names match a pattern: see [`Optimizer::group`].
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

    /// Freezes the parameters whose names match a pattern, in which each `*` stands for any characters. Steps do not change them, and do not
    /// compute their gradients: the backward pass ends where no parameter before is trained.
    ///
    /// If several patterns match a parameter, the last call of [`freeze`](Self::freeze) or [`unfreeze`](Self::unfreeze) decides. A parameter with
    /// several names, such as a table that the output layer shares, matches by any of them. If a pattern matches no parameter, or all
    /// parameters are frozen, the next step returns an error. [`set_frozen`](Self::set_frozen) freezes and unfreezes between steps.
    ///
    /// A frozen parameter has no weight decay, no share in the norm for [`clip`](Self::clip), and no gradient in memory. The optimizer keeps
    /// nothing for it, unless it was trained before. Gradients of the others have the same bits as if nothing were frozen, and so have their
    /// first steps, unless they are [clipped](Self::clip): the norm is less.
    ///
    /// ```
    /// # use attn::{prelude::*, train::AdamWConfig};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { let mut h = x; repeat 3 { h += gelu(linear::<d>(h)); } linear::<1>(h) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let dev = Cpu::default();
    /// # let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
    /// # let model = dev.build_module::<Net, f32>();
    /// // All but the last block and the head.
    /// let mut trainer = model
    ///     .trainer(AdamWConfig::default())
    ///     .freeze("*")
    ///     .unfreeze("blocks.2.*")
    ///     .unfreeze("linear.*");
    /// let frozen = trainer.parameters().into_iter().filter(|parameter| parameter.frozen);
    /// assert!(frozen.map(|parameter| parameter.name).eq([
    ///     "blocks.0.linear.weight",
    ///     "blocks.0.linear.bias",
    ///     "blocks.1.linear.weight",
    ///     "blocks.1.linear.bias",
    /// ]));
    /// trainer.step(x)?;
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `p.requires_grad_(False)`.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn freeze(mut self, pattern: &str) -> Self {
        self.optimizer.set_frozen(pattern, true);
        self.forget_trained();
        self
    }

    /// Trains the parameters whose names match a pattern, although another one [freezes](Self::freeze) them.
    ///
    /// PyTorch: `p.requires_grad_(True)`.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn unfreeze(mut self, pattern: &str) -> Self {
        self.optimizer.set_frozen(pattern, false);
        self.forget_trained();
        self
    }

    /// Freezes all parameters but the adapters of a model that [declares](Adapted) them, and the layers that it [trains whole](crate::Lora::save):
    /// `freeze("*")`, and [`unfreeze`](Self::unfreeze) for the names of these. Only they have gradients in memory and lists in the optimizer.
    ///
    /// A trainer freezes nothing by itself: the same declaration is trained whole without this.
    ///
    /// ```
    /// # use attn::{prelude::*, train::AdamWConfig};
    /// model! {
    ///     struct Net<d = 4, lora(rank = 2, on = ["linear"])>;
    ///     fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
    ///     fn loss(x: [batch, d]) -> [] { mean::<[batch, d]>(forward(x)) }
    /// }
    /// # let dev = Cpu::default();
    /// # let x: Tensor<Rank2<3, 4>, f32, _> = dev.sample_normal();
    /// let mut trainer = dev.build_module::<Net, f32>().trainer(AdamWConfig::default()).only_adapters();
    /// let trained = trainer.parameters().into_iter().filter(|parameter| !parameter.frozen);
    /// assert!(trained.map(|parameter| parameter.name).eq(["linear.lora_A.weight", "linear.lora_B.weight"]));
    /// trainer.step(x)?;
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// ```
    ///
    /// PEFT: `get_peft_model(model, LoraConfig(..))`.
    #[doc(alias("get_peft_model", "peft", "lora", "requires_grad_"))]
    pub fn only_adapters(mut self) -> Self
    where
        M: Adapted,
    {
        self.optimizer = self.optimizer.only_adapters(&self.model);
        self.forget_trained();
        self
    }

    /// [`freeze`](Self::freeze) or [`unfreeze`](Self::unfreeze) from the next step on. Accumulated batches are forgotten.
    ///
    /// # Errors
    /// [`UpdateError::NoParameter`] if no parameter has such a name. Nothing has changed then.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn set_frozen(
        &mut self,
        pattern: &str,
        is_frozen: bool,
    ) -> Result<(), UpdateError<ErrOf<M>>> {
        Optimizer::<M::Element, A>::check_pattern(&self.model, pattern)?;
        self.optimizer.set_frozen(pattern, is_frozen);
        self.forget_trained();
        Ok(())
    }

    /// The next step asks which parameters are trained. Accumulated batches are forgotten.
    fn forget_trained(&mut self) {
        self.choices = None;
        if let Some(across) = &mut self.across {
            across.forget_shards();
        }
        self.forget_batches();
    }

    /// Forgets accumulated batches.
    pub(crate) fn forget_batches(&mut self) {
        self.losses.clear();
        self.first = None;
        if let Some(parameters) = &mut self.parameters {
            parameters.forget();
        }
    }

    /// The parameters, in the order of the model. PyTorch: `model.named_parameters()`.
    #[doc(alias = "named_parameters")]
    pub fn parameters(&self) -> Vec<TrainerParameter> {
        let choices = self.optimizer.choices(&self.model);
        let mut all = Vec::new();
        let Ok(()) = for_each(&self.model, |path, parameter| {
            all.push(TrainerParameter {
                name: path.name,
                dims: parameter.dims(),
                frozen: choices.is_frozen(parameter.id()),
            });
            Ok::<_, Infallible>(())
        });
        all
    }

    /// The bytes of the gradients that the trainer keeps from step to step, with the rounding errors of those that it sends in
    /// [bf16](Self::bf16_gradients). [Frozen](Self::freeze) parameters have none.
    pub fn gradient_bytes(&self) -> usize {
        let parameters = self.parameters.as_ref();
        let errors = self.across.as_ref().map_or(0, Across::error_bytes);
        parameters.map_or(0, Parameters::gradient_bytes) + errors
    }

    /// The seed of dropout: 0 by default. PyTorch: `torch.manual_seed`.
    #[doc(alias = "manual_seed")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the number type of the operands of matrix products, in steps and [evaluations](Self::evaluate). With [`Dtype::Bf16`], both operands of each product
    /// are rounded to bf16. Sums, biases, norms, softmax, the parameters and the lists of the optimizer stay in the type of the model. On a Zen 4, whose
    /// AVX-512 BF16 has twice the rate of `f32`, a step takes about 0.6 of the time. On an Intel Xeon of 2023 it took 1.5 times as long: there that instruction is
    /// slow. A product whose sums are `f32` has the same bits on both, and on processors without the instruction.
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
    /// A processor without the instruction computes the same bits, but takes longer than with [`Dtype::Model`]. The bits are the same for any
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

    /// One step on a batch, the arguments of the model's `loss`. If others were [accumulated](Self::accumulate), the step is on all of
    /// them.
    ///
    /// PyTorch: `loss.backward(); optimizer.step(); optimizer.zero_grad()`.
    ///
    /// # Errors
    /// The errors of [`accumulate`](Self::accumulate): nothing has changed then, and batches before it stay accumulated. The errors of
    /// [`apply`](Self::apply), after which all accumulated batches are forgotten.
    pub fn step<B: TrainBatch<M>>(&mut self, batch: B) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        let number = self.losses.len() as u32;
        let again = batch.clone();
        let accumulated = self.accumulate_part(batch, true);
        self.tell_ranks(&accumulated);
        accumulated?;
        let step = self.apply_part();
        self.tell_ranks(&step);
        step.map_err(|error| self.with_operation(error, again, number))
    }

    /// Adds the gradients of a batch to those of the next step, and returns its loss. [`apply`](Self::apply) takes the step, on the mean of
    /// the losses.
    ///
    /// Each batch counts by its targets: how many its last tensor has, or if the loss has a `cross_entropy`, how many that has, without those
    /// that its `ignore_index` leaves out. So where the loss is a mean over targets, batches of different sizes, or with more and less
    /// padding, take the step of one batch with all of them. Batches with the same number of targets count the same, whatever the loss is.
    ///
    /// ```
    /// # use attn::{prelude::*, train::SgdConfig};
    /// # model! {
    /// #     struct Linear1<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let dev = Cpu::default();
    /// # let mut trainer = dev.build_module::<Linear1, f64>().trainer(SgdConfig::default());
    /// # let batches = [(); 3].map(|()| -> Tensor<Rank2<4, 2>, f64, _> { dev.sample_normal() });
    /// for batch in batches {
    ///     trainer.accumulate(batch)?;
    /// }
    /// trainer.apply()?;
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `(loss * targets / all_targets).backward()` for each batch, then `optimizer.step()`, as `transformers` does with
    /// `num_items_in_batch`.
    ///
    /// # Errors
    /// [`TrainError::Call`] if the loss does not accept the batch; [`TrainError::EmptyBatch`] if its loss is NaN because it has no targets,
    /// unless such steps are [skipped](NonFinite::Skip); [`TrainError::Update`] if a pattern has no parameter, or all parameters are
    /// [frozen](Self::freeze). Nothing has changed then.
    ///
    /// Of several [ranks](Self::across), the loss is that of the part of this one: NaN if it has no targets. [`TrainError::EmptyBatch`] is of
    /// a batch in which no rank has any, and all have the error and go on. Another error of a rank ends all ranks.
    #[doc(alias("gradient_accumulation_steps", "backward"))]
    pub fn accumulate<B: TrainBatch<M>>(&mut self, batch: B) -> Result<f64, TrainError<ErrOf<M>>> {
        let done = self.accumulate_part(batch, false);
        self.tell_ranks(&done);
        done
    }

    /// Behind the last batch of a step, gradients are exchanged as soon as they are finished.
    fn accumulate_part<B: TrainBatch<M>>(
        &mut self,
        batch: B,
        is_last: bool,
    ) -> Result<f64, TrainError<ErrOf<M>>> {
        self.check_share()?;
        let step = self.optimizer.state.step.saturating_add(1);
        let number = self.losses.len() as u32;
        let again = batch.clone();
        self.join()?;
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        choose(&mut self.choices, parameters, &self.optimizer, &self.model)?;
        let Share {
            factor,
            targets,
            part,
        } = match &mut self.across {
            None => Share::all(batch.targets()),
            Some(across) => {
                across.keep_own(parameters, &mut self.optimizer.state);
                across.share(batch.targets(), batch.rows())?
            }
        };
        if self.losses.is_empty() {
            self.first_targets = targets;
        }
        // The weight of a single batch, and of equal ones, is exactly 1.
        let weight = targets.max(1) as f64 / self.first_targets.max(1) as f64;
        if factor == 0.0 {
            self.losses.push((0.0, weight));
            return Ok(f64::NAN);
        }
        let derived = Rc::new(RefCell::new(None));
        let operation = Operation::of_step(Arc::clone(&parameters.arena), self.dtype).deriving(
            Rc::clone(&derived),
            StepSeeds::new(self.seed, step, number).of_part(part),
            Arc::clone(&parameters.trained),
        );
        let loss: Tensor<_, _, _, StepTape> = batch.loss(&self.model, operation)?;
        let loss = number_of(&loss.split_tape().0);
        let mut has_no_loss = targets == 0 && loss.is_nan();
        if let (0, Some(across)) = (targets, &mut self.across) {
            // The parts of the other ranks may have a number, and no rank goes on without them.
            let [count] = across.sum([f64::from(u8::from(has_no_loss))])?;
            has_no_loss = count > 0.0;
        }
        if has_no_loss && self.non_finite == NonFinite::Stop {
            return Err(TrainError::EmptyBatch { step });
        }
        if let Some(derivative) = derived.take() {
            let of_step = self.losses.iter().map(|(_, weight)| weight).sum::<f64>() + weight;
            let weight = factor * weight;
            match self.across.take_if(|_| is_last) {
                None => parameters.add(derivative, weight),
                Some(mut across) => {
                    across.begin_step(of_step);
                    let exchange = |inputs| Exchange { across, inputs };
                    let exchange = parameters.add_watched(derivative, weight, exchange);
                    self.across = Some(exchange.across);
                }
            }
        }
        self.losses.push((factor * loss, weight));
        if !loss.is_finite() && self.first.is_none() && self.non_finite == NonFinite::Stop {
            self.first = Some(self.first_non_finite(again, number));
        }
        Ok(loss)
    }

    /// One step on the accumulated batches.
    ///
    /// PyTorch: `optimizer.step(); optimizer.zero_grad()`, after `loss.backward()` of each batch.
    ///
    /// # Errors
    /// [`TrainError::NoBatch`] without any; [`TrainError::NotFinite`] if the loss or a gradient is not finite, unless such steps are
    /// [skipped](NonFinite::Skip); [`TrainError::Update`] if a setting is not allowed, or the state does not fit the model. The
    /// parameters and the state are as before, and the batches are forgotten.
    ///
    /// Of several [ranks](Self::across), [`TrainError::Ranks`] if another one has failed, and [`TrainError::Update`] ends all of them.
    pub fn apply(&mut self) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        // The settings may have changed since the last batch.
        let joined = match self.losses.is_empty() {
            true => Ok(()),
            false => self.join(),
        };
        let applied = joined.and_then(|()| self.apply_part());
        self.tell_ranks(&applied);
        applied
    }

    fn apply_part(&mut self) -> Result<TrainStep, TrainError<ErrOf<M>>> {
        let losses = std::mem::take(&mut self.losses);
        let first = self.first.take();
        if losses.is_empty() {
            return Err(TrainError::NoBatch);
        }
        let count = losses.iter().map(|(_, weight)| weight).sum::<f64>();
        let loss = losses.iter().map(|(loss, weight)| loss * weight);
        let loss = loss.sum::<f64>() / count;
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        if let Some(across) = &mut self.across {
            // The state may have been gathered since the last batch.
            across.keep_own(parameters, &mut self.optimizer.state);
        }
        let choices = choose(&mut self.choices, parameters, &self.optimizer, &self.model);
        let settings = Settings {
            clip: self.clip,
            schedule: self.schedule.as_deref(),
            non_finite: self.non_finite,
            ema: self.ema,
        };
        let applied = match choices {
            Err(error) => Err(error.into()),
            Ok(choices) => apply::<M, A>(
                parameters,
                &mut self.optimizer,
                choices,
                &settings,
                self.across.as_mut(),
                (loss, count),
                first,
            ),
        };
        parameters.forget();
        self.has_news |= applied.is_ok();
        applied
    }

    /// The loss of a batch, without dropout and gradients. PyTorch: `model.eval()`, and `with torch.no_grad()`.
    ///
    /// # Errors
    /// [`TrainError::Call`] if the loss does not accept the batch.
    #[doc(alias("validate", "no_grad", "eval"))]
    pub fn evaluate<B: TrainBatch<M>>(&mut self, batch: B) -> Result<f64, TrainError<ErrOf<M>>> {
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        let operation = Operation::of_step(Arc::clone(&parameters.arena), self.dtype);
        let loss: Tensor<_, _, _, NoneTape> = batch.loss(&self.model, operation)?;
        Ok(number_of(&loss))
    }

    /// The model with the current parameters.
    pub fn model(&mut self) -> &M {
        if std::mem::take(&mut self.has_news)
            && let Some(parameters) = &self.parameters
        {
            parameters.write(&mut self.model);
        }
        &self.model
    }

    /// The model as it was brought up to date last, the state, and the ranks if there are several.
    pub(crate) fn parts(
        &mut self,
    ) -> (
        &M,
        &OptimizerState<M::Element, A>,
        Option<OfRank<'_, M::Element>>,
    ) {
        let of_rank = self.across.as_mut().map(Across::of_rank);
        (&self.model, &self.optimizer.state, of_rank)
    }

    /// [`model`](Self::model), to change its parameters. The next step reads them again. Accumulated batches are forgotten.
    pub fn model_mut(&mut self) -> &mut M {
        self.model();
        self.read_again();
        &mut self.model
    }

    /// The model, to change its parameters, before [`read_again`](Self::read_again).
    pub(crate) fn model_to_load(&mut self) -> &mut M {
        self.model();
        &mut self.model
    }

    /// The next step reads the parameters of the model. Accumulated batches are forgotten.
    pub(crate) fn read_again(&mut self) {
        self.parameters = None;
        self.forget_trained();
    }

    /// The model with the current parameters, for good.
    pub fn into_model(self) -> M {
        self.into_parts().0
    }

    /// The model and the optimizer, for steps by hand. Of several [ranks](Self::across), the optimizer has all lists after
    /// [`gather_state`](Self::gather_state) alone, else a share of them.
    pub fn into_parts(mut self) -> (M, Optimizer<M::Element, A>) {
        self.model();
        self.optimizer.bind(&self.model);
        (self.model, self.optimizer)
    }

    /// The settings of the algorithm.
    pub fn config(&self) -> &A {
        &self.optimizer.config
    }

    /// The settings of the algorithm, for the next step.
    pub fn config_mut(&mut self) -> &mut A {
        self.choices = None;
        &mut self.optimizer.config
    }

    /// The names of the frozen parameters.
    pub(crate) fn frozen(&self) -> BTreeSet<String> {
        let frozen = self.parameters().into_iter().filter(|of| of.frozen);
        frozen.map(|of| of.name).collect()
    }

    /// The state of the optimizer. Of several [ranks](Self::across), it has all lists after [`gather_state`](Self::gather_state) alone, else a
    /// share of them.
    pub fn state(&self) -> &OptimizerState<M::Element, A> {
        &self.optimizer.state
    }

    /// The state of the optimizer, to go on from another one.
    pub fn state_mut(&mut self) -> &mut OptimizerState<M::Element, A> {
        &mut self.optimizer.state
    }
}

/// The parameters, read of the model if they are not yet.
fn ready<'a, M: Trainable>(
    parameters: &'a mut Option<Parameters<M::Element>>,
    model: &mut M,
) -> Result<&'a mut Parameters<M::Element>, UpdateError<ErrOf<M>>> {
    Ok(match parameters {
        Some(parameters) => parameters,
        none => none.insert(Parameters::of(model)?),
    })
}

/// Finds out how each parameter is updated, and which are trained, unless it is known.
fn choose<'a, M: Trainable, A: Algorithm>(
    known: &'a mut Option<Choices>,
    parameters: &mut Parameters<M::Element>,
    optimizer: &Optimizer<M::Element, A>,
    model: &M,
) -> Result<&'a Choices, UpdateError<ErrOf<M>>> {
    Ok(match known {
        Some(choices) => choices,
        none => {
            let choices = optimizer.choices(model);
            optimizer.check_patterns(&choices)?;
            parameters.train(|id| !choices.is_frozen(id));
            none.insert(choices)
        }
    })
}

fn number_of<E: Element, D: Backend<E>>(loss: &Tensor<Rank0, E, D>) -> f64 {
    loss.as_vec()[0].into()
}

struct Settings<'a, A> {
    clip: Option<f64>,
    schedule: Option<&'a SetRate<A>>,
    non_finite: NonFinite,
    ema: Option<f64>,
}

/// The step of the optimizer, on gradients that are the sum over batches, whose weights are `count` together.
fn apply<M: Trainable, A: Algorithm>(
    parameters: &mut Parameters<M::Element>,
    optimizer: &mut Optimizer<M::Element, A>,
    choices: &Choices,
    settings: &Settings<'_, A>,
    mut across: Option<&mut Across<M::Element>>,
    (mut loss, count): (f64, f64),
    first: Option<Search<M>>,
) -> Result<TrainStep, TrainError<ErrOf<M>>> {
    if let Some(found) = settings.clip.filter(|clip| clip.is_nan() || *clip < 0.0) {
        Err(UpdateError::Config {
            name: "clip",
            found,
            expected: "0 or more",
        })?;
    }
    settings.ema.map_or(Ok(()), averaged::check)?;
    let mut squares = 0.0;
    if let Some(across) = &mut across {
        across.reduce(parameters, count)?;
        [squares, loss] = across.sum([parameters.squared_norm(), loss])?;
    } else {
        parameters.merge();
        squares += parameters.squared_norm();
    }
    let norm = squares.sqrt() / count;
    let mut done = TrainStep {
        step: optimizer.state.step.saturating_add(1),
        loss,
        grad_norm: norm,
        learning_rate: None,
        skipped: false,
    };
    if !(loss.is_finite() && norm.is_finite()) {
        done.skipped = true;
        across.iter_mut().for_each(|across| across.forget_errors());
        if settings.non_finite == NonFinite::Skip {
            return Ok(done);
        }
        let mut parameter = parameters.first_non_finite();
        if let Some(across) = &mut across {
            let place = across.least(parameter.unwrap_or(usize::MAX))?;
            parameter = Some(place);
        }
        let parameter = parameter.and_then(|place| parameters.all.get(place));
        let (first, search) = parts(first.unwrap_or(Ok(None)));
        return Err(TrainError::NotFinite {
            step: done.step,
            loss,
            grad_norm: norm,
            parameter: parameter.map(|of| of.path.name.clone()),
            first,
            search,
        });
    }
    let clipped = settings.clip.filter(|clip| norm > *clip);
    let factor = clipped.map_or(1.0, |clip| clip / norm) / count;
    if let Some(set) = settings.schedule {
        set(&mut optimizer.config, done.step);
    }
    done.learning_rate = optimizer.config.lr(done.step);
    optimizer.check_settings(choices)?;
    let own = across.as_ref().and_then(|across| across.own());
    optimizer.begin(choices, own)?;
    if factor != 1.0 {
        parameters.scale(factor);
    }
    let all = parameters.all_mut().into_iter();
    let targets = all.map(|(of, numbers, gradient)| Target {
        of: &choices.all()[of.index],
        choice: choices.of(of.id),
        start: of.own.start,
        numbers,
        gradient,
    });
    optimizer.update_all(targets.collect());
    match settings.ema {
        Some(decay) => averaged::update(parameters, &mut optimizer.state, decay),
        None => averaged::forget(&mut optimizer.state),
    }
    if let Some(across) = across {
        across.gather(parameters)?;
    }
    Ok(done)
}

impl<M: Trainable> Trainer<M, ScheduleFreeConfig> {
    /// Puts the mean of all steps into the model: the parameters to evaluate and to save. See [`ScheduleFree`](super::ScheduleFree).
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn eval(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        self.model();
        self.gather_state()?;
        self.optimizer.eval(&mut self.model)?;
        self.read_again();
        Ok(())
    }

    /// Puts the parameters into the model at which the gradients of the next step are taken.
    ///
    /// # Errors
    /// [`UpdateError::StateMismatch`] if the state is that of another model. Nothing has changed then.
    pub fn train(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        self.model();
        self.gather_state()?;
        self.optimizer.train(&mut self.model)?;
        self.read_again();
        Ok(())
    }
}

impl<M: Trainable, A: fmt::Debug> fmt::Debug for Trainer<M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("config", &self.optimizer.config)
            .field("step", &self.optimizer.state.step)
            .field("clip", &self.clip)
            .field("seed", &self.seed)
            .field("dtype", &self.dtype)
            .field("non_finite", &self.non_finite)
            .finish_non_exhaustive()
    }
}
