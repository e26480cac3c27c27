//! The state of an optimizer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::Range;

/// The state of an [`Optimizer`](super::Optimizer) with the algorithm `A` between steps.
///
/// It is plain data, for formats that save lists of numbers by name, such as those for tensors.
///
/// ```
/// use attn::{dfdx::prelude::*, train::{AdamW, AdamWState}};
///
/// let mut model: Tensor<Rank1<2>, f32, Cpu> = Cpu::default().tensor([3.0, 4.0]);
/// let mut optimizer = AdamW::new(Default::default());
/// let mut gradients = model.leaky_trace().square().sum().backward();
/// optimizer.update(&mut model, &mut gradients)?;
///
/// let AdamWState { step, numbers, lists, .. } = optimizer.state;
/// assert_eq!(step, 1);
/// let names: Vec<_> = lists.keys().collect();
/// assert_eq!(names, [".mean", ".square"]); // dfdx gives a model that is a tensor no name
/// let mut state = AdamWState::default();
/// (state.step, state.numbers, state.lists) = (step, numbers, lists);
/// # Ok::<(), attn::train::UpdateError<CpuError>>(())
/// ```
pub struct OptimizerState<E, A> {
    /// The number of steps so far.
    pub step: u64,
    /// What the algorithm keeps for all parameters, by name; for those of a [group](super::Optimizer::group) with its pattern before the name:
    /// `[blocks.*] weight_sum`.
    pub numbers: BTreeMap<String, f64>,
    /// What it keeps for each parameter, row-major, by the names `<parameter>.<list>`.
    pub lists: BTreeMap<String, Vec<E>>,
    /// How many steps have updated a parameter, by its name, of those that not every step has: they were [frozen](super::Optimizer::freeze),
    /// or had no gradient, or their lists began later, with other settings.
    pub updates: BTreeMap<String, u64>,
    /// The names of the parameters that were [frozen](super::Optimizer::freeze) in the last step. In a checkpoint of a
    /// [`Trainer`](super::Trainer), of those that are frozen in the next one.
    pub frozen: BTreeSet<String>,
    #[doc(hidden)]
    pub algorithm: PhantomData<fn() -> A>,
}

/// The state before the first step.
impl<E, A> Default for OptimizerState<E, A> {
    fn default() -> Self {
        Self {
            step: 0,
            numbers: BTreeMap::new(),
            lists: BTreeMap::new(),
            updates: BTreeMap::new(),
            frozen: BTreeSet::new(),
            algorithm: PhantomData,
        }
    }
}

impl<E, A> OptimizerState<E, A> {
    /// How many of the steps so far have updated a parameter.
    pub(crate) fn updates_of(&self, parameter: &str) -> u64 {
        self.updates.get(parameter).copied().unwrap_or(self.step)
    }

    /// Counts an update of a parameter by the current step, and returns how many there were with it.
    pub(super) fn count_update(&mut self, parameter: &str) -> u64 {
        let count = self.updates_of(parameter).saturating_add(1);
        match count == self.step {
            true => self.updates.remove(parameter),
            false => self.updates.insert(parameter.to_owned(), count),
        };
        count
    }
}

/// The range of each parameter that a rank updates, and whose lists it has.
#[derive(Clone, Debug)]
pub(crate) struct Own(BTreeMap<String, Part>);

#[derive(Clone, Debug)]
struct Part {
    /// The number of elements of the parameter.
    len: usize,
    range: Range<usize>,
}

impl Own {
    /// For parameters of these names and lengths.
    pub(crate) fn new(all: impl IntoIterator<Item = (String, usize, Range<usize>)>) -> Self {
        let parts = all.into_iter();
        Self(
            parts
                .map(|(name, len, range)| (name, Part { len, range }))
                .collect(),
        )
    }

    /// Whether the rank updates numbers of a parameter. One without any is on all ranks.
    pub(crate) fn has(&self, parameter: &str) -> bool {
        let part = self.0.get(parameter);
        part.is_some_and(|part| !part.range.is_empty() || part.len == 0)
    }

    /// The length of the rank's part of a list. A parameter whose lists have other lengths than it has one owner.
    pub(super) fn len(&self, list: &str, whole: usize) -> usize {
        match self.0.get(parameter_of(list)) {
            Some(part) if part.len == whole => part.range.len(),
            _ => whole,
        }
    }

    /// The rank's part of a list, which may be whole.
    pub(crate) fn part<'a, E>(&self, name: &str, list: &'a [E]) -> Option<&'a [E]> {
        let part = self.0.get(parameter_of(name));
        let part = part.filter(|_| self.has(parameter_of(name)))?;
        Some(match list.len() == part.len {
            true => &list[part.range.clone()],
            false => list,
        })
    }

    /// Drops what other ranks have.
    pub(super) fn keep<E: Clone, A>(&self, state: &mut OptimizerState<E, A>) {
        state
            .lists
            .retain(|name, list| match self.part(name, list) {
                None => false,
                Some(part) => {
                    if part.len() < list.len() {
                        *list = part.to_vec();
                    }
                    true
                }
            });
    }
}

/// The parameter of a list, whose name is `<parameter>.<list>`.
fn parameter_of(list: &str) -> &str {
    list.rsplit_once('.')
        .map_or(list, |(parameter, _)| parameter)
}

impl<E: Clone, A> Clone for OptimizerState<E, A> {
    fn clone(&self) -> Self {
        Self {
            step: self.step,
            numbers: self.numbers.clone(),
            lists: self.lists.clone(),
            updates: self.updates.clone(),
            frozen: self.frozen.clone(),
            algorithm: PhantomData,
        }
    }
}

impl<E: PartialEq, A> PartialEq for OptimizerState<E, A> {
    fn eq(&self, other: &Self) -> bool {
        self.step == other.step
            && self.numbers == other.numbers
            && self.lists == other.lists
            && self.updates == other.updates
            && self.frozen == other.frozen
    }
}

impl<E: Debug, A> Debug for OptimizerState<E, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptimizerState")
            .field("step", &self.step)
            .field("numbers", &self.numbers)
            .field("lists", &self.lists)
            .field("updates", &self.updates)
            .field("frozen", &self.frozen)
            .finish_non_exhaustive()
    }
}
