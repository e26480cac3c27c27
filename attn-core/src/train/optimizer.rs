//! Optimizers: algorithms with their state for a model.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::{self, Debug};

use dfdx::{
    nn::TensorCollection,
    optim::{Optimizer as DfdxOptimizer, OptimizerUpdateError, UnusedTensors},
    tensor::{Gradients, UniqueId},
};

use super::algorithm::{Algorithm, List, ListStart, Update};
use super::parameters::{check_gradients, for_each, for_each_mut, without_gradient};
use super::{
    OptimizerState, ParameterInfo, UpdateError,
    groups::{Group, matches},
};
use crate::{Backend, Element, fused::zeros, kernel::Buffer};

/// An optimizer: an [`Algorithm`], and its state for a model.
///
/// [`AdamW`](super::AdamW), [`Sgd`](super::Sgd), [`Lion`](super::Lion), [`Adafactor`](super::Adafactor), [`Muon`](super::Muon) and
/// [`ScheduleFree`](super::ScheduleFree) are optimizers. PyTorch: `torch.optim`.
///
/// Weight decay applies to matrices. It does not apply to biases, the gains of norms, and the tables of embeddings and learned
/// positions. [`ParameterInfo::decays_by_default`] has the rule, and [`decaying`](Self::decaying) changes it.
///
/// The [`config`](Self::config) can be changed between steps, for example by a learning rate schedule. The [`state`](Self::state)
/// is data, with the names of the parameters. Training that resumes with it, and with the parameters, continues as if it had not
/// stopped. It is also an [`Optimizer`](DfdxOptimizer) of dfdx, but as such it copies all gradients in each step.
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

/// How a parameter is updated, whatever its names are.
#[derive(Debug, Default)]
pub(super) struct Choice {
    decays: bool,
    /// The groups that it is in, by their index.
    groups: Vec<usize>,
    is_frozen: bool,
}

/// Freezes the parameters whose names match a pattern, or trains them again.
struct Freeze {
    pattern: String,
    is_frozen: bool,
}

/// How the parameters of a model are updated.
#[derive(Default)]
pub(super) struct Choices {
    by_id: BTreeMap<UniqueId, Choice>,
    /// That of a parameter of another model.
    other: Choice,
}

impl Choices {
    pub(super) fn of(&self, parameter: UniqueId) -> &Choice {
        self.by_id.get(&parameter).unwrap_or(&self.other)
    }

    pub(super) fn is_frozen(&self, parameter: UniqueId) -> bool {
        self.of(parameter).is_frozen
    }
}

/// The model of the last step.
struct LastStep {
    /// The step count after it. Another count means that the user has set the state.
    step: u64,
    parameters: Vec<UniqueId>,
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

    /// Changes which parameters decay.
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
    /// algorithm keeps for all parameters, as [`ScheduleFree`](super::ScheduleFree) the share of a step in the mean, is computed of the `config`.
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
    /// The last of several [`freeze`](Self::freeze) and [`unfreeze`](Self::unfreeze) that has a parameter holds. A parameter with several
    /// names, such as a table that the output layer shares, is meant by any of them. A pattern without a parameter is an error of the next
    /// step, and so is a model whose parameters are all frozen. A frozen parameter needs no gradient. What was kept for it in earlier steps
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
        self.check_settings(model)?;
        let parameters = self.check_model(model)?;
        let choices = self.choices(model);
        check_gradients(model, gradients, |id| !choices.is_frozen(id))?;
        let choices = self.begin(model)?;
        let step = self.state.step;
        self.last_step = Some(LastStep { step, parameters });
        for_each_mut(model, |path, parameter| {
            let choice = choices.of(parameter.id());
            if choice.is_frozen {
                return Ok(());
            }
            let dims = parameter.dims();
            let gradient = parameter.gradient(gradients)?;
            let mut numbers = Buffer::uninit(gradient.len());
            parameter.read(&mut numbers);
            self.update_numbers(path.info(&dims), choice, &mut numbers, Some(gradient));
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

    /// Checks that a parameter of the model has a name like this.
    pub(super) fn check_pattern<M: TensorCollection<E, D>, D: Backend<E>>(
        model: &M,
        pattern: &str,
    ) -> Result<(), UpdateError<D::Err>> {
        let names = names_of(model);
        if names.iter().any(|name| matches(pattern, name)) {
            return Ok(());
        }
        let pattern = pattern.to_owned();
        Err(UpdateError::NoParameter { pattern, names })
    }

    /// Checks the settings, that every pattern has a parameter, and that something is trained.
    pub(super) fn check_settings<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<(), UpdateError<D::Err>> {
        self.config.check().map_err(UpdateError::of_setting)?;
        if self.groups.is_empty() && self.frozen.is_empty() {
            return Ok(());
        }
        self.check_patterns(model)?;
        for choice in self.choices(model).by_id.values() {
            let checked = self.with_settings(choice, Algorithm::check);
            checked.map_err(UpdateError::of_setting)?;
        }
        Ok(())
    }

    /// Checks that every pattern has a parameter, and that something is trained.
    pub(super) fn check_patterns<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<(), UpdateError<D::Err>> {
        if self.groups.is_empty() && self.frozen.is_empty() {
            return Ok(());
        }
        let names = names_of(model);
        let groups = self.groups.iter().map(|group| &group.pattern);
        let mut patterns = groups.chain(self.frozen.iter().map(|freeze| &freeze.pattern));
        let has_none = |pattern: &&String| !names.iter().any(|name| matches(pattern, name));
        if let Some(pattern) = patterns.find(has_none) {
            let pattern = pattern.clone();
            return Err(UpdateError::NoParameter { pattern, names });
        }
        let choices = self.choices(model);
        if !names.is_empty() && choices.by_id.values().all(|choice| choice.is_frozen) {
            return Err(UpdateError::AllFrozen);
        }
        Ok(())
    }

    /// `f` of the settings of a parameter.
    pub(super) fn with_settings<R>(&self, of: &Choice, f: impl FnOnce(&A) -> R) -> R {
        let mut settings = None;
        for group in of.groups.iter().filter_map(|index| self.groups.get(*index)) {
            settings = Some(group.settings(settings.as_ref().unwrap_or(&self.config)));
        }
        f(settings.as_ref().unwrap_or(&self.config))
    }

    /// Begins a step: checks the state, and counts the step. Until they are [updated](Self::update_numbers), no parameter has one more.
    /// Returns how each parameter is updated.
    pub(super) fn begin<M: TensorCollection<E, D>, D: Backend<E>>(
        &mut self,
        model: &M,
    ) -> Result<Choices, UpdateError<D::Err>> {
        let choices = self.choices(model);
        self.check_state(model, &choices)?;
        let step = self.state.step.saturating_add(1);
        let begun = self.config.begin(step, &mut self.state.numbers);
        begun.map_err(|reason| UpdateError::NotReady { reason })?;
        self.state.frozen.clear();
        let Ok(()) = for_each(model, |path, parameter| {
            let count = self.state.updates_of(&path.name);
            if choices.is_frozen(parameter.id()) {
                self.state.frozen.insert(path.name.clone());
            }
            self.state.updates.insert(path.name, count);
            Ok::<_, Infallible>(())
        });
        self.state.step = step;
        Ok(choices)
    }

    /// Updates the numbers of a parameter, in a step that has begun. Without a gradient it is left alone, but it has lists. A frozen one has
    /// none, unless it was trained before.
    pub(super) fn update_numbers(
        &mut self,
        info: ParameterInfo<'_>,
        choice: &Choice,
        numbers: &mut [E],
        gradient: Option<&[E]>,
    ) {
        if choice.is_frozen {
            return;
        }
        let mut lists: Vec<_> = A::LISTS
            .iter()
            .map(|list| self.take_list(list, &info, choice, numbers))
            .collect();
        if let Some(gradient) = gradient {
            let count = self.state.updates_of(info.name).saturating_add(1);
            match count == self.state.step {
                true => self.state.updates.remove(info.name),
                false => self.state.updates.insert(info.name.to_owned(), count),
            };
            let update = Update {
                step: self.state.step,
                count,
                info,
                decays: choice.decays,
                numbers: &self.state.numbers,
                parameter: numbers,
                gradient,
                lists: &mut lists,
            };
            self.with_settings(choice, |settings| settings.update(update));
        }
        for (list, numbers) in A::LISTS.iter().zip(lists) {
            if self.keeps(list, &info, choice) {
                self.state.lists.insert(name_of(&info, list), numbers);
            }
        }
    }

    fn keeps(&self, list: &List, info: &ParameterInfo<'_>, choice: &Choice) -> bool {
        list.always || self.with_settings(choice, |settings| settings.keeps(list, info))
    }

    /// Moves a list out of the state. One that is not kept is empty.
    fn take_list(
        &mut self,
        list: &List,
        info: &ParameterInfo<'_>,
        choice: &Choice,
        parameter: &[E],
    ) -> Vec<E> {
        if !self.keeps(list, info, choice) {
            return Vec::new();
        }
        let of_state = self.state.lists.get_mut(&name_of(info, list));
        match (of_state, list.start) {
            (Some(numbers), _) => std::mem::take(numbers),
            (None, ListStart::Zeros) => zeros(list.size.of(info.dims)),
            (None, ListStart::Parameter) => parameter.to_vec(),
        }
    }

    /// How each parameter is updated.
    pub(super) fn choices<M: TensorCollection<E, D>, D: Backend<E>>(&self, model: &M) -> Choices {
        let mut choices = Choices::default();
        // By the last rule that has one of its names.
        let mut frozen_by = BTreeMap::new();
        let Ok(()) = for_each(model, |path, parameter| {
            let mut rules = self.frozen.iter();
            let last = rules.rposition(|rule| matches(&rule.pattern, &path.name));
            let by = frozen_by.entry(parameter.id()).or_insert(last);
            *by = last.max(*by);
            let is_frozen = by.is_some_and(|rule| self.frozen[rule].is_frozen);
            let choice = choices.by_id.entry(parameter.id());
            let choice = choice.or_insert(Choice {
                decays: true,
                ..Choice::default()
            });
            choice.is_frozen = is_frozen;
            choice.decays &= (self.decays)(&path.info(&parameter.dims()));
            for (index, group) in self.groups.iter().enumerate() {
                if matches(&group.pattern, &path.name) && !choice.groups.contains(&index) {
                    choice.groups.push(index);
                }
            }
            choice.groups.sort_unstable();
            Ok::<_, Infallible>(())
        });
        choices
    }

    /// Checks that the model has the parameters of the earlier steps, and returns them.
    fn check_model<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Result<Vec<UniqueId>, UpdateError<D::Err>> {
        let parameters = ids_of(model);
        let last_step = self.last_step.as_ref();
        match last_step.filter(|last_step| last_step.step == self.state.step) {
            Some(last_step) if last_step.parameters != parameters => Err(UpdateError::OtherModel {
                name: self.first_unknown(model, &last_step.parameters),
                optimizer: A::NAME,
            }),
            _ => Ok(parameters),
        }
    }

    /// The first parameter of the model that differs from that of the optimizer at its position, or one that only the optimizer
    /// has.
    fn first_unknown<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        last_step: &[UniqueId],
    ) -> String {
        let mut names = BTreeSet::new();
        let mut last_step = last_step.iter();
        let strange = for_each(model, |path, parameter| {
            if last_step.next() != Some(&parameter.id()) {
                return Err(path.name);
            }
            names.insert(path.name);
            Ok(())
        });
        let mut known = self
            .state
            .lists
            .keys()
            .filter_map(|name| Some(name.rsplit_once('.')?.0));
        let missing = || known.find(|name| !names.contains(*name)).map(str::to_owned);
        strange.err().or_else(missing).unwrap_or_default()
    }

    /// Checks that the lists of the state have the lengths of the model's parameters.
    pub(super) fn check_state<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
        choices: &Choices,
    ) -> Result<(), UpdateError<D::Err>> {
        for_each(model, |path, parameter| {
            let dims = parameter.dims();
            let info = path.info(&dims);
            let choice = choices.of(parameter.id());
            let kept = A::LISTS
                .iter()
                .filter(|list| self.keeps(list, &info, choice));
            let kept: Vec<_> = kept.map(|list| (list, name_of(&info, list))).collect();
            let is_new = kept
                .iter()
                .all(|(list, name)| !list.always || !self.state.lists.contains_key(name));
            for (list, name) in kept {
                let expected = list.size.of(&dims);
                let found = match self.state.lists.get(&name) {
                    Some(numbers) => numbers.len(),
                    None if is_new || !list.always => expected,
                    None => 0,
                };
                if found != expected {
                    return Err(UpdateError::StateMismatch {
                        name,
                        expected,
                        found,
                    });
                }
            }
            Ok(())
        })
    }
}

/// The names of all parameters, in the order of the model.
fn names_of<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(model: &M) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(()) = for_each(model, |path, _| {
        names.push(path.name);
        Ok::<_, Infallible>(())
    });
    names
}

/// The ids of all parameters, in the order of the model.
fn ids_of<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(model: &M) -> Vec<UniqueId> {
    let mut parameters = Vec::new();
    let Ok(()) = for_each(model, |_, parameter| {
        parameters.push(parameter.id());
        Ok::<_, Infallible>(())
    });
    parameters
}

/// The name of a list in the state.
fn name_of(parameter: &ParameterInfo<'_>, list: &List) -> String {
    format!("{}.{}", parameter.name, list.name)
}

/// [`update`](Optimizer::update) on a copy of the gradients.
///
/// # Panics
/// On [`UpdateError::OtherModel`], [`UpdateError::StateMismatch`] and [`UpdateError::Config`], which dfdx's error type cannot
/// express.
impl<M: TensorCollection<E, D>, E: Element, D: Backend<E>, A: Algorithm> DfdxOptimizer<M, D, E>
    for Optimizer<E, A>
{
    fn update(
        &mut self,
        model: &mut M,
        gradients: &Gradients<E, D>,
    ) -> Result<(), OptimizerUpdateError<D::Err>> {
        let mut gradients = gradients.clone();
        let missing =
            without_gradient(model, &mut gradients).map_err(OptimizerUpdateError::DeviceError)?;
        let choices = self.choices(model);
        let ids = missing.into_iter().map(|(_, id)| id);
        let ids: Vec<_> = ids.filter(|id| !choices.is_frozen(*id)).collect();
        if !ids.is_empty() {
            return Err(OptimizerUpdateError::UnusedParams(UnusedTensors { ids }));
        }
        match Self::update(self, model, &mut gradients) {
            Ok(()) => Ok(()),
            Err(UpdateError::Device(error)) => Err(OptimizerUpdateError::DeviceError(error)),
            Err(mistake) => panic!("{mistake}"),
        }
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use crate::train::{AdamW, AdamWConfig, AdamWState, UpdateError, scale_grads};

    type Model = Tensor<Rank1<1>, f64, Cpu>;

    fn step(optimizer: &mut AdamW<f64>, model: &mut Model) -> Result<f64, String> {
        let before = model.array()[0];
        let mut gradients = model.leaky_trace().square().sum().backward();
        match optimizer.update(model, &mut gradients) {
            Ok(()) => Ok(model.array()[0]),
            Err(error) => {
                assert!(matches!(error, UpdateError::OtherModel { .. }), "{error}");
                assert_eq!(model.array()[0], before, "nothing was changed");
                Err(error.to_string())
            }
        }
    }

    fn models() -> [Model; 2] {
        let dev = Cpu::default();
        [dev.tensor([1.0]), dev.tensor([2.0])]
    }

    #[test]
    fn a_second_model_is_refused_and_the_first_one_can_continue() {
        let [mut first, mut second] = models();
        let [mut alone, _] = models();
        let mut optimizer = AdamW::new(Default::default());
        let mut its_own = AdamW::new(Default::default());
        for _ in 0..3 {
            let found = step(&mut optimizer, &mut first);
            assert_eq!(found, step(&mut its_own, &mut alone));
            let refused = step(&mut optimizer, &mut second);
            assert_eq!(
                refused.err().as_deref(),
                Some(
                    "this optimizer is of another model, which has not the same parameter: a second model takes an `AdamW` of its own"
                )
            );
        }
    }

    #[test]
    fn models_with_more_or_fewer_parameters_are_refused() {
        type Pair = (Model, Model);
        let mut pair: Pair = models().into();
        let mut optimizer = AdamW::<f64>::new(AdamWConfig::default());
        let mut gradients = pair.alloc_grads();
        optimizer
            .update(&mut pair, &mut gradients)
            .expect("the first step");
        let mut update = |model: &mut (Model,)| {
            let mut gradients = model.alloc_grads();
            optimizer
                .update(model, &mut gradients)
                .err()
                .map(|error| error.to_string())
        };
        // dfdx appends a dot to the index in a tuple, also at the end of a name.
        let refused = |name: &str| {
            Some(format!(
                "this optimizer is of another model, which has not the same `{name}`: a second model takes an `AdamW` of its own"
            ))
        };
        assert_eq!(update(&mut (pair.0.clone(),)), refused("1."));
        assert_eq!(update(&mut (pair.1.clone(),)), refused("0."));
    }

    #[test]
    fn clones_and_replaced_states_are_accepted() {
        let [mut first, mut second] = models();
        let mut optimizer = AdamW::new(Default::default());
        step(&mut optimizer, &mut first).expect("the first step");
        step(&mut optimizer, &mut first.clone()).expect("a clone has its parameters");
        optimizer.state = AdamWState::default();
        let found = step(&mut optimizer, &mut second);
        let [_, mut alone] = models();
        assert_eq!(found, step(&mut AdamW::new(Default::default()), &mut alone));
    }

    #[test]
    fn factors_that_are_not_finite_are_refused() {
        let [model, _] = models();
        for factor in [f64::NAN, 1.0 / 0.0] {
            let mut gradients = model.alloc_grads();
            let refused = scale_grads(&model, &mut gradients, factor).err();
            let message = refused.map(|error| error.to_string());
            assert_eq!(
                message,
                Some(format!("`factor` is {factor}, not a finite number"))
            );
            assert_eq!(gradients.get(&model).array(), [0.0]);
        }
    }
}
