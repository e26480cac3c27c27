//! The ranks of a trainer.

use std::{fmt::Debug, time::Duration};

use super::{
    TrainError, Trainable, Trainer,
    across::{Across, Description, RoundingErrors},
    choose,
    model::ErrOf,
    parameters::Trained,
    ready,
};
use crate::{
    Element,
    train::{
        Algorithm, Collective, Optimizer,
        collective::program,
        optimizer::{Choices, keeps},
    },
};

impl<M: Trainable, A: Algorithm> Trainer<M, A> {
    /// Trains on several ranks: processes, or threads of one. Each has a model and a trainer with the same settings, and calls
    /// [`step`](Self::step) with its part of the batch, in the order of the ranks.
    ///
    /// The step is that of one process on the whole batch. The loss is the mean over the targets of all ranks, which may have different
    /// numbers of them, or none: see [`Counted`](super::Counted). Gradients are added in the order of the ranks, so there are the same bits in every run with as many
    /// ranks. Dropout is a function of the place in the whole batch: of values whose first axis is that of the first input of the loss.
    /// [`clip`](Self::clip) takes the norm of all gradients, and [`TrainStep`](super::TrainStep) has the loss and the norm of all ranks.
    ///
    /// A rank keeps the optimizer's lists of its share of the parameters, which it alone updates: of an equal range of each, or of whole ones
    /// where the algorithm [needs](Algorithm::is_elementwise) them, as [`MuonConfig`](crate::train::MuonConfig) does for matrices. All ranks have
    /// all parameters: from the first batch on those of rank 0, whatever the models of the others begin with.
    /// [`gather_state`](Self::gather_state) gives them all lists, for a checkpoint. Whatever else changes the trainer, such as
    /// [`load`](Self::load), [`set_frozen`](Self::set_frozen) and [`model_mut`](Self::model_mut), is done on all ranks in the same way.
    /// Before the first step all ranks compare the program, the model, what is frozen, the settings of the trainer and those of the optimizer for each
    /// parameter: [`CollectiveError::Differs`](crate::train::CollectiveError::Differs). A [`schedule`](Self::schedule) is a function, which is not compared.
    ///
    /// Batches that were accumulated before are forgotten. Where a trainer leaves ranks for others, all of those it leaves do so, as they
    /// [gather](Self::gather_state) their state; if one does not, the next batch is [`TrainError::Share`].
    ///
    /// ```
    /// use attn::{prelude::*, train::{AdamWConfig, Threads, TrainError}};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d], target: [batch, 1]) -> [] { mean::<[batch, 1]>(pow(forward(x) - target, 2)) }
    /// # }
    ///
    /// let steps = Threads::run(2, |ranks| {
    ///     let dev = Cpu::default();
    ///     let mut trainer = dev.build_module::<Net, f32>().trainer(AdamWConfig::default()).across(ranks);
    ///     // Rows 0 to 3 of the batch on rank 0, rows 4 to 7 on rank 1.
    ///     let rows: Vec<f32> = (0..4).map(|row| (4 * trainer.rank() + row) as f32).collect();
    ///     let x = dev.tensor_from_vec(rows.iter().flat_map(|&row| [row, 1.0]).collect(), (4, Const::<2>));
    ///     let target = dev.tensor_from_vec(rows, (4, Const::<1>));
    ///     trainer.step((x, target))
    /// });
    /// for step in steps {
    ///     println!("{}", step.expect("no rank panics")?.loss);
    /// }
    /// # Ok::<(), TrainError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `DistributedDataParallel(model)` with `ZeroRedundancyOptimizer`.
    #[doc(alias(
        "DistributedDataParallel",
        "DDP",
        "ZeroRedundancyOptimizer",
        "FSDP",
        "ZeRO"
    ))]
    pub fn across(mut self, ranks: impl Collective + 'static) -> Self {
        self.has_share |= self.gather_state().is_err();
        self.across = (ranks.ranks() > 1).then(|| Across::new(Box::new(ranks)));
        if let Some(parameters) = &mut self.parameters {
            parameters.own_all();
        }
        self.forget_batches();
        self
    }

    /// Exchanges gradients with other [ranks](Self::across) in buckets of at least so many bytes of the model's type, as far as parameters remain: 4 MB by default.
    ///
    /// Gradients are exchanged from the last parameter of the model to the first one, whose gradients are computed last: a bucket travels as
    /// soon as its gradients are complete, while those before it are computed. Small buckets begin early, and each costs a message to every
    /// rank. The results do not depend on it. It is the same on all ranks.
    ///
    /// PyTorch: `bucket_cap_mb` of `DistributedDataParallel`.
    #[doc(alias = "bucket_cap_mb")]
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.traffic.bucket_bytes = bytes;
        self.forget_trained();
        self
    }

    /// Sends gradients to other [ranks](Self::across) in bf16, in half of the bytes of `f32`: `false` by default. Each is rounded to the
    /// nearest number of 8 significant bits, and what is missing of it is added to the gradient of the next step before that is rounded (error
    /// feedback; Seide et al., 2014). So over the steps nothing is lost but the last errors.
    ///
    /// A rank rounds what it sends alone: not its own part of a sum, which is in the type of the model and in the order of the ranks.
    /// Parameters are sent in full, so all ranks have the same, and there are the same bits in every run with as many ranks. A gradient that
    /// is not finite arrives so, and one beyond the largest number of bf16, 3.39e38, is infinite. [Accumulated](Self::accumulate) batches are
    /// rounded once, as their sum. A step that is [skipped](super::NonFinite::Skip), or an error because it is not finite, makes the errors 0.
    ///
    /// A rank keeps the errors of the numbers that it does not update, as many bytes as these take in the model's type:
    /// [`gradient_bytes`](Self::gradient_bytes) counts them. A checkpoint has them, a file for each rank, and [`load`](Self::load) behind
    /// [`across`](Self::across) goes on with them bit by bit. With another number of ranks, or a change of the trained parameters, those begin with 0
    /// that other ranks would have. An `f64` is rounded to `f32` before; its errors are `f64`. It is the same on all ranks.
    ///
    /// ```
    /// # use attn::{prelude::*, train::{SgdConfig, Threads}};
    /// # model! {
    /// #     struct Net<d = 64>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # let sent = Threads::run(2, |ranks| {
    /// # let model = Cpu::default().build_module::<Net, f32>();
    /// # let x: Tensor<Rank2<4, 64>, f32, _> = Cpu::default().sample_normal();
    /// let mut trainer = model.trainer(SgdConfig::default()).across(ranks).bf16_gradients(true);
    /// # trainer.step(x.clone())?;
    /// # let before = trainer.bytes_sent();
    /// trainer.step(x)?;
    /// # Ok::<_, attn::train::TrainError<CpuError>>(trainer.bytes_sent() - before)
    /// # });
    /// # let sent: u64 = sent.into_iter().map(|sent| sent.expect("no rank panics").unwrap()).sum();
    /// # assert!(sent as usize > Net::bytes_per_step_bf16(2) && (sent as usize) < Net::bytes_per_step(2) + 128 + 3);
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `model.register_comm_hook(None, bf16_compress_hook)`, which keeps no errors.
    #[doc(alias(
        "bf16_compress_hook",
        "register_comm_hook",
        "compression",
        "error feedback"
    ))]
    pub fn bf16_gradients(mut self, is_on: bool) -> Self {
        self.traffic.is_bf16 = is_on;
        self.forget_trained();
        self
    }

    /// The number of this rank, from 0. PyTorch: `dist.get_rank()`.
    pub fn rank(&self) -> usize {
        let across = self.across.as_ref();
        across.map_or(0, |across| across.collective().rank())
    }

    /// How many ranks there are. PyTorch: `dist.get_world_size()`.
    pub fn ranks(&self) -> usize {
        let across = self.across.as_ref();
        across.map_or(1, |across| across.collective().ranks())
    }

    /// The bytes of the messages that this rank has sent to others so far.
    pub fn bytes_sent(&self) -> u64 {
        let across = self.across.as_ref();
        across.map_or(0, |across| across.collective().bytes_sent())
    }

    /// The time in which this rank has had nothing to do but to wait for messages of others so far: that of one step is the difference. Ranks
    /// with less to compute wait longer.
    ///
    /// ```
    /// # use attn::{prelude::*, train::{SgdConfig, Threads}};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    /// # Threads::run(2, |ranks| {
    /// # let dev = Cpu::default();
    /// # let mut trainer = dev.build_module::<Net, f32>().trainer(SgdConfig::default()).across(ranks);
    /// # let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
    /// let before = trainer.waited();
    /// let step = trainer.step(x)?;
    /// println!("step {}: {:?} of waiting", step.step, trainer.waited() - before);
    /// # Ok::<(), attn::train::TrainError<CpuError>>(())
    /// # });
    /// ```
    pub fn waited(&self) -> Duration {
        let across = self.across.as_ref();
        across.map_or(Duration::ZERO, |across| across.collective().waited())
    }

    /// Gives every rank the optimizer's lists of all, until the next batch or step. All ranks call it, before one of them saves a checkpoint.
    ///
    /// PyTorch: `optimizer.consolidate_state_dict()`.
    ///
    /// # Errors
    /// [`TrainError::Ranks`] if a rank has failed; [`TrainError::Share`] if the trainer has left ranks that have other shares.
    #[doc(alias = "consolidate_state_dict")]
    pub fn gather_state(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        self.check_share()?;
        let gathered = match &mut self.across {
            Some(across) => across.gather_state(&mut self.optimizer.state),
            None => Ok(()),
        };
        let gathered = gathered.map_err(TrainError::Ranks);
        self.tell_ranks(&gathered);
        gathered
    }

    /// # Errors
    /// [`TrainError::Share`] if the state is a share of that of ranks that the trainer has left.
    pub(super) fn check_share(&self) -> Result<(), TrainError<ErrOf<M>>> {
        match self.has_share {
            true => Err(TrainError::Share),
            false => Ok(()),
        }
    }

    /// The [ranks](Self::across), if there are several: to add up numbers of all, to wait until all are there, to end the others.
    ///
    /// All ranks call the same operations in the same order, and between two steps: one that leaves out an operation, as in
    /// `if trainer.rank() == 0`, is an error of all that names it. [`fail`](Collective::fail) alone is of one rank: it ends the others, which
    /// would wait for one that goes no further.
    ///
    /// ```
    /// use attn::{prelude::*, train::{Collective, SgdConfig, Threads, TrainError}};
    /// # model! {
    /// #     struct Net<d = 2>;
    /// #     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    /// #     fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(forward(x)) }
    /// # }
    ///
    /// let ends = Threads::run(2, |ranks| {
    ///     let dev = Cpu::default();
    ///     let mut trainer = dev.build_module::<Net, f32>().trainer(SgdConfig::default()).across(ranks);
    ///     let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
    ///     trainer.step(x)?;
    ///
    ///     // The examples of all ranks; the ones of this rank, without others.
    ///     let mut examples = 4.0;
    ///     if let Some(ranks) = trainer.collective() {
    ///         examples = ranks.sum(&[examples])?[0];
    ///     }
    ///     assert_eq!(examples, 8.0);
    ///
    ///     // One rank writes; if it cannot, the others end, too.
    ///     let written = match trainer.rank() {
    ///         0 => std::fs::write("/no/such/folder/loss.txt", "1.0"),
    ///         _ => Ok(()),
    ///     };
    ///     if let Some(ranks) = trainer.collective() {
    ///         match &written {
    ///             Err(error) => ranks.fail(&error.to_string()),
    ///             Ok(()) => ranks.barrier()?,
    ///         }
    ///     }
    ///     Ok::<_, TrainError<CpuError>>(())
    /// });
    /// let error = ends.into_iter().nth(1).unwrap().expect("no rank panics").unwrap_err().to_string();
    /// assert!(error.starts_with("rank 0 has failed"), "{error}");
    /// ```
    ///
    /// PyTorch: the functions of `torch.distributed`, such as `dist.all_reduce`.
    #[doc(alias("all_reduce", "barrier", "torch.distributed", "process_group"))]
    pub fn collective(&mut self) -> Option<&mut dyn Collective> {
        self.across.as_mut().map(Across::collective_mut)
    }

    /// Before the first step, and behind a change of what is trained or of the settings that decides who updates what: brings the ranks together,
    /// which check that they are set up the same.
    pub(in crate::train) fn join(&mut self) -> Result<(), TrainError<ErrOf<M>>> {
        if self.cuts_whole_ones() {
            self.across.iter_mut().for_each(Across::forget_shards);
        }
        let Some(across) = self.across.as_mut().filter(|across| !across.has_shards()) else {
            return Ok(());
        };
        let parameters = ready(&mut self.parameters, &mut self.model)?;
        let choices = choose(&mut self.choices, parameters, &self.optimizer, &self.model)?;
        across
            .collective_mut()
            .agree("program", &program().to_le_bytes())?;
        across.gather_state(&mut self.optimizer.state)?;
        let traffic = self.traffic;
        let numbers = (self.dtype, self.seed, self.ema);
        let settings = (self.clip, numbers, self.non_finite, traffic);
        let description = || describe::<M, _, _>(&self.optimizer, choices, settings);
        let is_whole = |of: &Trained| !is_elementwise(&self.optimizer, choices, of);
        across.join(parameters, traffic, is_whole, description)?;
        self.has_news = true;
        Ok(())
    }

    /// Whether each rank has a range of a parameter that is updated as a whole, since the settings have changed. It is so on all ranks.
    fn cuts_whole_ones(&self) -> bool {
        let (Some(across), Some(parameters)) = (&self.across, &self.parameters) else {
            return false;
        };
        let of_these_settings;
        let choices = match &self.choices {
            Some(choices) => choices,
            None => {
                of_these_settings = self.optimizer.choices(&self.model);
                &of_these_settings
            }
        };
        let mut trained = parameters.trained_in(0..parameters.all.len());
        trained
            .any(|(index, of)| across.cuts(index) && !is_elementwise(&self.optimizer, choices, of))
    }

    /// The state was set to that of all parameters, on every rank, and the rounding errors to those of this one.
    pub(crate) fn state_is_whole(&mut self, errors: Option<RoundingErrors<M::Element>>) {
        self.has_share = false;
        if let Some(across) = &mut self.across {
            across.is_whole();
            across.set_errors(errors);
        }
    }

    /// Tells the other ranks of an error that they may not have, so that they do not wait for this one. A step that is not finite, or has no
    /// targets, is so on all of them, which go on.
    pub(in crate::train) fn tell_ranks<T>(&mut self, done: &Result<T, TrainError<ErrOf<M>>>) {
        if let (Err(error), Some(across)) = (done, &mut self.across)
            && !matches!(
                error,
                TrainError::NotFinite { .. } | TrainError::EmptyBatch { .. } | TrainError::NoBatch
            )
        {
            across.fail(&error.to_string());
        }
    }
}

/// Whether the algorithm updates the numbers of a parameter one by one.
fn is_elementwise<E: Element, A: Algorithm>(
    optimizer: &Optimizer<E, A>,
    choices: &Choices,
    of: &Trained,
) -> bool {
    let dims = &choices.all()[of.index].dims;
    optimizer.is_elementwise(choices.of(of.id), dims)
}

/// What all ranks have in common, the settings of the trainer among them.
fn describe<M, E: Element, A: Algorithm>(
    optimizer: &Optimizer<E, A>,
    choices: &Choices,
    of_trainer: impl Debug,
) -> Description {
    let mut parameters = String::from(std::any::type_name::<M>());
    let step = optimizer.state.step;
    let mut settings = format!("{} {step} {of_trainer:?}\n", A::NAME);
    for of in choices.all() {
        let choice = choices.of(of.id);
        parameters += &format!("{} {:?} {:?}\n", of.name, of.dims, choice.rules());
        let info = choice.info(&of.dims);
        optimizer.with_settings(choice, |of| {
            let kept: Vec<_> = A::LISTS.iter().map(|list| keeps(of, list, &info)).collect();
            settings += &format!("{of:?} {} {kept:?}\n", of.is_elementwise(&info));
        });
    }
    Description {
        model: parameters,
        settings,
    }
}

#[cfg(test)]
mod tests {
    use dfdx::{nn::DeviceBuildExt, tensor::Cpu};

    use super::*;
    use crate::{
        nn::{Linear, UnbiasedLinear},
        train::MuonConfig,
    };

    #[test]
    fn functions_are_compared_by_what_they_return() {
        type Two = (Linear<3, 2>, UnbiasedLinear<2, 5>);
        let model = Cpu::default().build_module::<Two, f64>();
        let of = |hidden| {
            let config = MuonConfig {
                hidden,
                ..MuonConfig::default()
            };
            let optimizer = Optimizer::new(config);
            let choices = optimizer.choices(&model);
            describe::<Two, _, _>(&optimizer, &choices, ()).settings
        };
        let settings = of(|parameter| parameter.name.starts_with('0'));
        // An address is another one in each process.
        assert!(!settings.contains("0x"), "{settings}");
        assert_eq!(settings, of(|parameter| parameter.dims == [2, 3]));
        assert_ne!(settings, of(|_| true));
    }
}
