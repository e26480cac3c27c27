//! Training steps without a tape: the loss of a declared model, its gradients and the optimizer on slices.

mod access;
mod accumulate;
mod across;
mod averaged;
mod counted;
mod error;
mod finite;
mod model;
mod parameters;
mod ranks;
mod settings;
mod update;

use std::{collections::BTreeSet, convert::Infallible, fmt, sync::Arc};

use dfdx::{
    shapes::Rank0,
    tensor::{NoneTape, Tensor},
};

use self::{
    across::{Across, Traffic},
    finite::Search,
    parameters::Parameters,
};
use super::{
    Algorithm, InvalidSetting, Optimizer, UpdateError, optimizer::Choices, parameters::for_each,
};
use crate::{Adapted, Backend, Element, fused::Operation, kernel::Dtype};

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

/// Sets the learning rate of a step, if the settings of the schedule are allowed.
type SetRate<A> = dyn Fn(&mut A, u64) -> Result<(), InvalidSetting> + Send + Sync;

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

    /// The number of the next step.
    fn next_step(&self) -> u64 {
        self.optimizer.state.step.saturating_add(1)
    }
}

// Freezing.
impl<M: Trainable, A: Algorithm> Trainer<M, A> {
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

    /// The names of the frozen parameters.
    pub(crate) fn frozen(&self) -> BTreeSet<String> {
        let frozen = self.parameters().into_iter().filter(|of| of.frozen);
        frozen.map(|of| of.name).collect()
    }

    /// The bytes of the gradients that the trainer keeps from step to step, with the rounding errors of those that it sends in
    /// [bf16](Self::bf16_gradients). [Frozen](Self::freeze) parameters have none.
    pub fn gradient_bytes(&self) -> usize {
        let parameters = self.parameters.as_ref();
        let errors = self.across.as_ref().map_or(0, Across::error_bytes);
        parameters.map_or(0, Parameters::gradient_bytes) + errors
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
