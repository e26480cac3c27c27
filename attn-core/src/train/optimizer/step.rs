//! A step: its beginning, and the work of all threads on the parameters.

use std::collections::BTreeMap;

use super::{
    Optimizer,
    choices::{Choice, Choices, Named},
};
use crate::{
    Element,
    fused::zeros,
    kernel::parallel::{SMALL, for_each, run_pass},
    train::{Algorithm, List, ListSize, ListStart, Own, ParameterInfo, Update, UpdateError},
};

/// Numbers by their names.
type Numbers = BTreeMap<String, f64>;

/// The beginning of the names of numbers for groups.
const OF_GROUPS: &str = "[";

/// A parameter in a step, or the part of it that this rank updates.
pub(in crate::train) struct Target<'a, E> {
    pub(in crate::train) of: &'a Named,
    pub(in crate::train) choice: &'a Choice,
    /// How many elements of the parameter are before these.
    pub(in crate::train) start: usize,
    pub(in crate::train) numbers: &'a mut [E],
    pub(in crate::train) gradient: Option<&'a [E]>,
}

impl<'a, E> Target<'a, E> {
    /// The properties that the algorithm is told.
    fn info(&self) -> ParameterInfo<'a> {
        self.choice.info(&self.of.dims)
    }
}

impl<E: Element, A: Algorithm> Optimizer<E, A> {
    /// Begins a step: checks the state, of which a rank may have a part, and counts the step. Until they are [updated](Self::update_all), no parameter has one more.
    pub(in crate::train) fn begin<Dev>(
        &mut self,
        choices: &Choices,
        own: Option<&Own>,
    ) -> Result<(), UpdateError<Dev>> {
        self.check_state(choices, own)?;
        let step = self.state.step.saturating_add(1);
        let numbers = self.begin_numbers(choices, step);
        self.state.numbers = numbers.map_err(|reason| UpdateError::NotReady { reason })?;
        self.state.frozen.clear();
        for of in choices.all() {
            let count = self.state.updates_of(&of.name);
            if choices.is_frozen(of.id) {
                self.state.frozen.insert(of.name.clone());
            }
            self.state.updates.insert(of.name.clone(), count);
        }
        self.state.step = step;
        Ok(())
    }

    /// The numbers that the algorithm keeps for all parameters in this step, and those that it keeps for the parameters of groups, with
    /// their settings.
    fn begin_numbers(&self, choices: &Choices, step: u64) -> Result<Numbers, &'static str> {
        let mut all = self.numbers_of(&[]);
        self.config.begin(step, &mut all)?;
        for groups in choices.groups() {
            if let Some(settings) = self.settings_of_groups(groups) {
                let mut numbers = self.numbers_of(groups);
                settings.begin(step, &mut numbers)?;
                let of = self.name_of_groups(groups);
                all.extend(numbers.into_iter().map(|(name, x)| (of.clone() + &name, x)));
            }
        }
        Ok(all)
    }

    /// The numbers for the parameters of these groups. Before their first step they are those for the parameters that are in none.
    fn numbers_of(&self, groups: &[usize]) -> Numbers {
        let name_of_groups = self.name_of_groups(groups);
        let all = self.state.numbers.iter();
        let named = all.filter_map(|(name, x)| {
            let name = name.strip_prefix(&name_of_groups)?;
            (!name.starts_with(OF_GROUPS)).then(|| (name.to_owned(), *x))
        });
        let numbers: Numbers = named.collect();
        match numbers.is_empty() && !groups.is_empty() {
            true => self.numbers_of(&[]),
            false => numbers,
        }
    }

    /// What is in front of the names of the numbers for these groups: `[blocks.*] `.
    fn name_of_groups(&self, groups: &[usize]) -> String {
        let patterns = groups.iter().filter_map(|index| self.groups.get(*index));
        let patterns: Vec<_> = patterns.map(|group| group.pattern.as_str()).collect();
        match patterns.is_empty() {
            true => String::new(),
            false => format!("{OF_GROUPS}{}] ", patterns.join(", ")),
        }
    }

    /// Updates parameters on all threads, in a step that has begun. One without a gradient is left alone, but it has lists. A frozen one has
    /// none, unless it was trained before.
    pub(in crate::train) fn update_all(&mut self, mut targets: Vec<Target<'_, E>>) {
        targets.retain(|target| !target.choice.is_frozen);
        let mut of_groups = BTreeMap::new();
        for Target { choice, .. } in &targets {
            let groups = choice.groups.as_slice();
            of_groups
                .entry(groups)
                .or_insert_with(|| (self.settings_of_groups(groups), self.numbers_of(groups)));
        }
        let mut kept = Vec::with_capacity(targets.len());
        let mut counts = Vec::with_capacity(targets.len());
        for target in &targets {
            let (settings, _) = &of_groups[target.choice.groups.as_slice()];
            let lists = self.take_lists(target, settings.as_ref());
            if are_new(&lists) {
                self.state.updates.insert(target.of.name.clone(), 0);
            }
            counts.push(match target.gradient {
                Some(_) => self.state.count_update(&target.of.name),
                None => 0,
            });
            kept.push(lists);
        }
        let all = targets.into_iter().zip(&mut kept).zip(counts);
        let parts = all.filter_map(|((target, kept), count)| {
            let (settings, numbers) = &of_groups[target.choice.groups.as_slice()];
            let lists = kept.iter_mut().map(|kept| kept.numbers.as_mut_slice());
            Some(Part {
                algorithm: settings.as_ref().unwrap_or(&self.config),
                step: self.state.step,
                numbers,
                info: target.info(),
                count,
                decays: target.choice.decays,
                start: target.start,
                parameter: target.numbers,
                gradient: target.gradient?,
                lists: lists.collect(),
            })
        });
        run(parts);
        for Kept { name, numbers, .. } in kept.into_iter().flatten() {
            let Some(name) = name else { continue };
            match self.state.lists.get_mut(name) {
                Some(list) => *list = numbers,
                None => drop(self.state.lists.insert(name.to_owned(), numbers)),
            }
        }
    }

    /// Moves the lists of a parameter out of the state. Those that are not kept any more are dropped: they would be out of date later.
    fn take_lists<'a>(&mut self, target: &Target<'a, E>, settings: Option<&A>) -> Vec<Kept<'a, E>> {
        let settings = settings.unwrap_or(&self.config);
        let mut kept = Vec::with_capacity(A::LISTS.len());
        for (list, name) in A::LISTS.iter().zip(&target.of.lists) {
            if !keeps(settings, list, &target.info()) {
                self.state.lists.remove(name);
                kept.push(Kept::default());
                continue;
            }
            let found = self.state.lists.get_mut(name).map(std::mem::take);
            let is_new = found.is_none();
            let numbers = found.unwrap_or_else(|| match (list.start, list.size) {
                (ListStart::Zeros, ListSize::Elements) => zeros(target.numbers.len()),
                (ListStart::Zeros, size) => zeros(size.of(&target.of.dims)),
                (ListStart::Parameter, _) => target.numbers.to_vec(),
            });
            kept.push(Kept {
                name: Some(name),
                numbers,
                is_new,
            });
        }
        kept
    }
}

/// A list of a parameter, with its name in the state. One that is not kept has no name and no numbers.
#[derive(Default)]
struct Kept<'a, E> {
    name: Option<&'a str>,
    numbers: Vec<E>,
    is_new: bool,
}

/// Whether a parameter begins with new lists, as those of an algorithm that it has been given since its last update: its updates count anew, or
/// the means of the lists would not be corrected for their zeros.
fn are_new<E>(lists: &[Kept<'_, E>]) -> bool {
    let mut kept = lists.iter().filter(|kept| kept.name.is_some()).peekable();
    kept.peek().is_some() && kept.all(|kept| kept.is_new)
}

impl<E: Element, A: Algorithm> Optimizer<E, A> {
    /// Whether parts of a parameter can be updated by themselves: each number is, and its lists have a number for each.
    pub(in crate::train) fn is_elementwise(&self, choice: &Choice, dims: &[usize]) -> bool {
        let parameter = &choice.info(dims);
        self.with_settings(choice, |settings| {
            let mut kept = A::LISTS
                .iter()
                .filter(|list| keeps(settings, list, parameter));
            settings.is_elementwise(parameter) && kept.all(|list| list.size == ListSize::Elements)
        })
    }
}

/// Whether an algorithm keeps a list for a parameter.
pub(in crate::train) fn keeps(
    settings: &impl Algorithm,
    list: &List,
    parameter: &ParameterInfo<'_>,
) -> bool {
    list.always || settings.keeps(list, parameter)
}

/// A parameter or a part of one, with its settings.
struct Part<'a, E, A> {
    algorithm: &'a A,
    step: u64,
    numbers: &'a Numbers,
    info: ParameterInfo<'a>,
    count: u64,
    decays: bool,
    start: usize,
    parameter: &'a mut [E],
    gradient: &'a [E],
    lists: Vec<&'a mut [E]>,
}

/// Updates all parts. Each thread takes ranges of [`SMALL`] numbers, which may have several parameters, and begin within one if its numbers
/// do not depend on each other. The ranges do not depend on the number of threads.
fn run<'a, E: Element, A: Algorithm + 'a>(parts: impl Iterator<Item = Part<'a, E, A>>) {
    let mut count = 0;
    let parts = parts.inspect(|part| count += part.parameter.len());
    let tasks = ranges(parts, SMALL);
    run_pass(count, || {
        for_each(tasks, |task| {
            for part in task {
                part.update();
            }
        });
    });
}

/// Parts in ranges of so many numbers.
fn ranges<'a, E: Element, A: Algorithm + 'a>(
    parts: impl Iterator<Item = Part<'a, E, A>>,
    size: usize,
) -> Vec<Vec<Part<'a, E, A>>> {
    let mut ranges = Vec::new();
    let mut range = Vec::new();
    let mut room = size;
    for part in parts {
        let mut rest = Some(part);
        while let Some(mut part) = rest {
            rest = part.split_off(room);
            room = room.saturating_sub(part.parameter.len());
            range.push(part);
            if room == 0 {
                ranges.push(std::mem::take(&mut range));
                room = size;
            }
        }
    }
    ranges.push(range);
    ranges
}

impl<E: Element, A: Algorithm> Part<'_, E, A> {
    /// Whether each number is updated by itself.
    fn is_elementwise(&self) -> bool {
        let has_all = |list: &&mut [E]| list.is_empty() || list.len() == self.parameter.len();
        self.algorithm.is_elementwise(&self.info) && self.lists.iter().all(has_all)
    }

    /// Leaves the first numbers, and returns the others, if there are any and they can be updated by themselves.
    fn split_off(&mut self, at: usize) -> Option<Self> {
        if at >= self.parameter.len() || !self.is_elementwise() {
            return None;
        }
        let (gradient, of_others) = self.gradient.split_at(at);
        self.gradient = gradient;
        let lists = self.lists.iter_mut();
        Some(Self {
            start: self.start + at,
            parameter: split_off(&mut self.parameter, at),
            gradient: of_others,
            lists: lists.map(|list| split_off(list, at)).collect(),
            ..*self
        })
    }

    fn update(self) {
        let mut lists: Vec<&mut [E]> = self.lists;
        self.algorithm.update(Update {
            step: self.step,
            count: self.count,
            info: self.info,
            decays: self.decays,
            numbers: self.numbers,
            start: self.start,
            parameter: self.parameter,
            gradient: self.gradient,
            lists: &mut lists,
        });
    }
}

/// Leaves the first numbers, and returns the others. A list that is not kept has none.
fn split_off<'a, E>(numbers: &mut &'a mut [E], at: usize) -> &'a mut [E] {
    let all = std::mem::take(numbers);
    let (first, others) = all.split_at_mut(at.min(all.len()));
    *numbers = first;
    others
}

#[cfg(test)]
mod tests;
