//! Which parameters of a model are trained, and with which settings.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Debug;

use dfdx::{nn::TensorCollection, tensor::UniqueId};

use super::{Optimizer, groups::matches};
use crate::{
    Backend, Element,
    train::{
        Algorithm, ParameterInfo, UpdateError,
        parameters::{ParamPath, for_each},
    },
};

/// How a parameter is updated, whatever its names are.
#[derive(Default)]
pub(in crate::train) struct Choice {
    pub(super) decays: bool,
    /// The groups that it is in, by their index.
    pub(super) groups: Vec<usize>,
    pub(super) is_frozen: bool,
    /// The name and the module by which the algorithm knows it: see [`Algorithm`].
    pub(super) path: ParamPath,
}

impl Choice {
    /// The properties of the parameter that the algorithm is told. It has these sizes.
    pub(in crate::train) fn info<'a>(&'a self, dims: &'a [usize]) -> ParameterInfo<'a> {
        self.path.info(dims)
    }

    /// The rules that ranks have in common, apart from the algorithm.
    pub(in crate::train) fn rules(&self) -> impl Debug + '_ {
        (self.decays, &self.groups, self.is_frozen)
    }
}

/// Freezes the parameters whose names match a pattern, or trains them again.
pub(super) struct Freeze {
    pub(super) pattern: String,
    pub(super) is_frozen: bool,
}

/// A parameter of a model, under one of its names.
pub(in crate::train) struct Named {
    pub(in crate::train) name: String,
    pub(in crate::train) dims: Vec<usize>,
    pub(in crate::train) id: UniqueId,
    /// The names in the state of each list of the algorithm, whether it is kept or not.
    pub(super) lists: Vec<String>,
}

impl Named {
    /// A parameter that the algorithm `A` updates.
    pub(super) fn new<A: Algorithm>(id: UniqueId, name: &str, dims: &[usize]) -> Self {
        let lists = A::LISTS.iter().map(|list| format!("{name}.{}", list.name));
        Self {
            name: name.to_owned(),
            dims: dims.to_owned(),
            id,
            lists: lists.collect(),
        }
    }
}

/// How the parameters of a model are updated.
#[derive(Default)]
pub(in crate::train) struct Choices {
    by_id: BTreeMap<UniqueId, Choice>,
    /// That of a parameter of another model.
    other: Choice,
    /// In the order of the model.
    all: Vec<Named>,
}

impl Choices {
    /// The parameters, in the order of the model.
    pub(in crate::train) fn all(&self) -> &[Named] {
        &self.all
    }

    /// Whether the name of a parameter is like this.
    fn has_match(&self, pattern: &str) -> bool {
        self.all.iter().any(|of| matches(pattern, &of.name))
    }

    pub(in crate::train) fn of(&self, parameter: UniqueId) -> &Choice {
        self.by_id.get(&parameter).unwrap_or(&self.other)
    }

    /// The groups of parameters that are in any, each once.
    pub(super) fn groups(&self) -> BTreeSet<&[usize]> {
        let all = self.by_id.values().map(|choice| choice.groups.as_slice());
        all.filter(|groups| !groups.is_empty()).collect()
    }

    pub(in crate::train) fn is_frozen(&self, parameter: UniqueId) -> bool {
        self.of(parameter).is_frozen
    }
}

impl<E: Element, A: Algorithm> Optimizer<E, A> {
    /// Checks that a parameter of the model has a name like this.
    pub(in crate::train) fn check_pattern<M: TensorCollection<E, D>, D: Backend<E>>(
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
    pub(in crate::train) fn check_settings<Dev>(
        &self,
        choices: &Choices,
    ) -> Result<(), UpdateError<Dev>> {
        self.config.check().map_err(UpdateError::of_setting)?;
        if self.groups.is_empty() && self.frozen.is_empty() {
            return Ok(());
        }
        self.check_patterns(choices)?;
        for choice in choices.by_id.values() {
            let checked = self.with_settings(choice, Algorithm::check);
            checked.map_err(UpdateError::of_setting)?;
        }
        Ok(())
    }

    /// Checks that every pattern has a parameter, and that something is trained.
    pub(in crate::train) fn check_patterns<Dev>(
        &self,
        choices: &Choices,
    ) -> Result<(), UpdateError<Dev>> {
        let groups = self.groups.iter().map(|group| &group.pattern);
        let mut patterns = groups.chain(self.frozen.iter().map(|freeze| &freeze.pattern));
        if let Some(pattern) = patterns.find(|pattern| !choices.has_match(pattern)) {
            let pattern = pattern.clone();
            let names = choices.all.iter().map(|of| of.name.clone()).collect();
            return Err(UpdateError::NoParameter { pattern, names });
        }
        let mut all = choices.by_id.values().peekable();
        if all.peek().is_some() && all.all(|choice| choice.is_frozen) {
            return Err(UpdateError::AllFrozen);
        }
        Ok(())
    }

    /// `f` of the settings of a parameter.
    pub(in crate::train) fn with_settings<R>(&self, of: &Choice, f: impl FnOnce(&A) -> R) -> R {
        f(self
            .settings_of_groups(&of.groups)
            .as_ref()
            .unwrap_or(&self.config))
    }

    /// The settings of the parameters in these groups, if there are any.
    pub(super) fn settings_of_groups(&self, groups: &[usize]) -> Option<A> {
        let mut settings = None;
        for group in groups.iter().filter_map(|index| self.groups.get(*index)) {
            settings = Some(group.settings(settings.as_ref().unwrap_or(&self.config)));
        }
        settings
    }

    /// How each parameter is updated.
    pub(in crate::train) fn choices<M: TensorCollection<E, D>, D: Backend<E>>(
        &self,
        model: &M,
    ) -> Choices {
        let mut choices = Choices::default();
        // By the last rule that has one of its names.
        let mut frozen_by = BTreeMap::new();
        let mut names = BTreeMap::<_, Vec<_>>::new();
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
            let dims = parameter.dims();
            choice.decays &= (self.decays)(&path.info(&dims));
            for (index, group) in self.groups.iter().enumerate() {
                if matches(&group.pattern, &path.name) && !choice.groups.contains(&index) {
                    choice.groups.push(index);
                }
            }
            choice.groups.sort_unstable();
            let named = Named::new::<A>(parameter.id(), &path.name, &dims);
            choices.all.push(named);
            names.entry(parameter.id()).or_default().push((path, dims));
            Ok::<_, Infallible>(())
        });
        for (id, names) in names {
            if let Some(choice) = choices.by_id.get_mut(&id) {
                choice.path = self.path_for_algorithm(choice, names);
            }
        }
        choices
    }

    /// The one of the names of a parameter by which the algorithm knows it.
    fn path_for_algorithm(
        &self,
        choice: &Choice,
        mut names: Vec<(ParamPath, Vec<usize>)>,
    ) -> ParamPath {
        let mut index = 0;
        if names.len() > 1 {
            let first = self.with_settings(choice, |settings| {
                let mut names = names.iter();
                names.position(|(path, dims)| settings.is_elementwise(&path.info(dims)))
            });
            index = first.unwrap_or(0);
        }
        names.swap_remove(index).0
    }
}

/// The names of all parameters, in the order of the model.
pub(super) fn names_of<M: TensorCollection<E, D>, E: Element, D: Backend<E>>(
    model: &M,
) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(()) = for_each(model, |path, _| {
        names.push(path.name);
        Ok::<_, Infallible>(())
    });
    names
}
