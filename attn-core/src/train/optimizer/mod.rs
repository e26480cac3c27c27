//! Optimizers: algorithms with their state for a model.

mod choices;
mod dfdx;
mod groups;
mod model;
mod step;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};

use ::dfdx::{nn::TensorCollection, tensor::Gradients};

pub(super) use choices::Choices;
pub(super) use step::{Target, keeps};

use self::{
    choices::Freeze,
    groups::Group,
    model::{LastStep, ids_of},
};
use super::{
    Algorithm, OptimizerState, ParameterInfo, UpdateError,
    parameters::{check_gradients, for_each_mut},
};
use crate::{Adapted, Backend, Element, kernel::Buffer};

/// An optimizer: an [`Algorithm`], and its state for a model.
///
/// [`AdamW`](super::AdamW), [`Sgd`](super::Sgd), [`Lion`](super::Lion), [`Adafactor`](super::Adafactor), [`Muon`](super::Muon) and
/// [`ScheduleFree`](super::ScheduleFree) are optimizers. PyTorch: `torch.optim`.
///
/// Weight decay applies to the matrices of linear maps. It does not apply to biases, gains, learned positions, and tables of embeddings.
/// [`ParameterInfo::decays_by_default`] has the rule, and [`decaying`](Self::decaying) changes it.
///
/// The [`config`](Self::config) can be changed between steps, for example by a learning rate schedule. The [`state`](Self::state)
/// is data, with the names of the parameters. Training that resumes with it, and with the parameters, continues as if it had not
/// stopped. It is also an [`Optimizer`](::dfdx::optim::Optimizer) of dfdx, but as such it copies all gradients in each step.
///
/// The first step binds an optimizer to the parameters of its model: its step count and lists belong to them. Another model,
/// also one with the same names, is an error until the state is reset. Clones of a model have the same parameters.
#[doc(alias("configure_optimizers", "torch.optim"))]
pub struct Optimizer<E, A> {
    /// The algorithm with the settings of the next step.
    pub config: A,
    /// Its state.
    pub state: OptimizerState<E, A>,
    decays: Box<Decays>,
    groups: Vec<Group<A>>,
    frozen: Vec<Freeze>,
    last_step: Option<LastStep>,
}

/// Decides which parameters decay.
type Decays = dyn Fn(&ParameterInfo<'_>) -> bool + Send + Sync;

impl<E, A> Optimizer<E, A> {
    /// An optimizer before its first step.
    pub fn new(config: A) -> Self {
        Self {
            config,
            state: OptimizerState::default(),
            decays: Box::new(|parameter| parameter.decays_by_default()),
            groups: Vec::new(),
            frozen: Vec::new(),
            last_step: None,
        }
    }

    /// Changes which parameters decay. By default these are the [matrices of linear maps](ParameterInfo::decays_by_default): no biases, gains,
    /// learned positions, and tables of embeddings.
    ///
    /// A parameter may have several names in a model, such as a table that the output layer shares. It does not decay if it does
    /// not decay under one of them.
    ///
    /// ```
    /// use attn::train::AdamW;
    ///
    /// // As PyTorch does without groups of parameters.
    /// let optimizer = AdamW::<f32>::new(Default::default()).decaying(|_| true);
    /// ```
    ///
    /// PyTorch: groups of parameters with `weight_decay=0`. nanoGPT: `.decaying(|parameter| parameter.dims.len() >= 2)`, which decays
    /// embeddings, too.
    #[doc(alias = "param_groups")]
    pub fn decaying(
        mut self,
        decays: impl Fn(&ParameterInfo<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.decays = Box::new(decays);
        self
    }

    /// Gives settings of their own to the parameters whose names match a pattern, in which each `*` stands for any characters.
    ///
    /// `change` makes them of the [`config`](Self::config) in each step, after a schedule has set that. If several groups have a parameter,
    /// they change its settings one after the other. A parameter with several names is in a group if one of them is. A pattern without a
    /// parameter is an error of the next step. A weight decay applies to those parameters of a group that [decay](Self::decaying). What an
    /// algorithm keeps for all parameters, as [`ScheduleFree`](super::ScheduleFree) the share of a step in the mean, a group has of its own.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::Linear, train::{AdamW, AdamWConfig}};
    ///
    /// let dev = Cpu::default();
    /// let mut model = dev.build_module::<(Linear<2, 2>, Linear<2, 1>), f32>();
    /// let mut optimizer = AdamW::new(AdamWConfig { lr: 1e-3, ..Default::default() })
    ///     .group("0.*", |config| config.lr = 0.0)
    ///     .group("*.bias", |config| config.betas = [0.9, 0.95]);
    /// let mut gradients = model.alloc_grads();
    /// let before = model.0.weight.array();
    /// optimizer.update(&mut model, &mut gradients)?;
    /// assert_eq!(model.0.weight.array(), before);
    /// # Ok::<(), attn::train::UpdateError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `param_groups`, as `AdamW([{"params": .., "lr": 0.0}, ..])`.
    #[doc(alias = "param_groups")]
    pub fn group(mut self, pattern: &str, change: impl Fn(&mut A) + Send + Sync + 'static) -> Self
    where
        A: Clone,
    {
        self.groups.push(Group::new(pattern, change));
        self
    }
}

impl<E, A> Optimizer<E, A> {
    /// Freezes the parameters whose names match a pattern, in which each `*` stands for any characters: steps do not change them, and keep
    /// nothing for them.
    ///
    /// If several patterns match a parameter, the last call of [`freeze`](Self::freeze) or [`unfreeze`](Self::unfreeze) decides. A parameter with
    /// several names, such as a table that the output layer shares, matches by any of them. If a pattern matches no parameter, or all
    /// parameters are frozen, the next step returns an error. A frozen parameter needs no gradient. What was kept for it in earlier steps
    /// stays, for the step after it is trained again.
    ///
    /// Here gradients come from dfdx's tape, which computes those of frozen parameters, too, and the functions
    /// [`grad_norm`](super::grad_norm) and [`clip_grad_norm`](super::clip_grad_norm) count them. A [`Trainer`](super::Trainer) does neither.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::Linear, train::{AdamW, AdamWConfig}};
    ///
    /// let dev = Cpu::default();
    /// let mut model = dev.build_module::<(Linear<2, 2>, Linear<2, 1>), f32>();
    /// let mut optimizer = AdamW::new(AdamWConfig::default()).freeze("0.*");
    /// let mut gradients = model.alloc_grads();
    /// let before = model.0.weight.array();
    /// optimizer.update(&mut model, &mut gradients)?;
    /// assert_eq!(model.0.weight.array(), before);
    /// assert!(optimizer.state.lists.keys().all(|name| name.starts_with("1.")));
    /// # Ok::<(), attn::train::UpdateError<CpuError>>(())
    /// ```
    ///
    /// PyTorch: `p.requires_grad_(False)`.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn freeze(mut self, pattern: &str) -> Self {
        self.set_frozen(pattern, true);
        self
    }

    /// Trains the parameters whose names match a pattern, although another one [freezes](Self::freeze) them.
    ///
    /// PyTorch: `p.requires_grad_(True)`.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn unfreeze(mut self, pattern: &str) -> Self {
        self.set_frozen(pattern, false);
        self
    }

    /// Freezes all parameters but the adapters of a model that [declares](Adapted) them, and the layers that it trains whole: see
    /// [`Trainer::only_adapters`](super::Trainer::only_adapters).
    ///
    /// PEFT: `get_peft_model(model, LoraConfig(..))`.
    #[doc(alias("get_peft_model", "peft", "lora", "requires_grad_"))]
    pub fn only_adapters<M, D>(mut self, model: &M) -> Self
    where
        M: TensorCollection<E, D> + Adapted,
        E: Element,
        D: Backend<E>,
    {
        self.set_frozen("*", true);
        let names = choices::names_of(model).into_iter();
        for name in names.filter(|name| M::LORA.trains(name)) {
            self.set_frozen(&name, false);
        }
        self
    }

    /// [`freeze`](Self::freeze) or [`unfreeze`](Self::unfreeze) from the next step on. An optimizer does not have the model, so a pattern without
    /// a parameter is an error of the next step. [`Trainer::set_frozen`](super::Trainer::set_frozen) returns it at once.
    #[doc(alias("requires_grad_", "requires_grad"))]
    pub fn set_frozen(&mut self, pattern: &str, is_frozen: bool) {
        self.frozen.retain(|other| other.pattern != pattern);
        self.frozen.push(Freeze {
            pattern: pattern.to_owned(),
            is_frozen,
        });
    }
}

impl<E: Element, A: Algorithm> Optimizer<E, A> {
    /// One step: updates the parameters of `model` by their gradients.
    ///
    /// Parameters that share a gradient, because one is a clone of the other, take the same step, each under its name.
    ///
    /// # Errors
    /// [`UpdateError::Config`] if the [`config`](Self::config) or a group has an invalid number; [`UpdateError::NoParameter`] if a
    /// [`group`](Self::group) or a pattern to [freeze](Self::freeze) has no parameter; [`UpdateError::AllFrozen`] if nothing is trained; [`UpdateError::OtherModel`] if earlier steps
    /// updated other parameters; [`UpdateError::NoGradient`] with the names of parameters that have no gradient and are not frozen;
    /// [`UpdateError::StateMismatch`] if the state is that of another model; [`UpdateError::NotReady`] if the algorithm cannot take a
    /// step now; [`UpdateError::Device`] if dfdx fails. No parameter has changed then.
    #[doc(alias = "step")]
    pub fn update<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &mut M,
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), UpdateError<D::Err>> {
        let choices = self.choices(model);
        self.check_settings(&choices)?;
        let parameters = self.check_model(model)?;
        check_gradients(model, gradients, |id| !choices.is_frozen(id))?;
        self.begin(&choices, None)?;
        let step = self.state.step;
        self.last_step = Some(LastStep { step, parameters });
        let mut all = choices.all().iter();
        for_each_mut(model, |_, parameter| {
            let choice = choices.of(parameter.id());
            let Some(of) = all.next().filter(|_| !choice.is_frozen) else {
                return Ok(());
            };
            let gradient = parameter.gradient(gradients)?;
            let mut numbers = Buffer::uninit(gradient.len());
            parameter.read(&mut numbers);
            self.update_all(vec![Target {
                of,
                choice,
                start: 0,
                numbers: &mut numbers,
                gradient: Some(gradient),
            }]);
            parameter.write(&numbers);
            Ok::<_, D::Err>(())
        })?;
        Ok(())
    }

    /// Binds the optimizer to the model of its steps.
    pub(super) fn bind<M: TensorCollection<E, D>, D: Backend<E>>(&mut self, model: &M) {
        let step = self.state.step;
        let parameters = ids_of(model);
        self.last_step = (step > 0).then_some(LastStep { step, parameters });
    }
}

impl<E: Debug, A: Debug> Debug for Optimizer<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Optimizer")
            .field("config", &self.config)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
