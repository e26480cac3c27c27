//! The errors of gradients that were sent in bf16: they are sent with the next ones.

use std::{collections::BTreeMap, ops::Range};

use super::shards::Exchanged;
use crate::{Element, kernel::elementwise};

/// The rounding errors of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundingErrors<E> {
    /// The weight of all batches of the step that they are of: gradients are sums over batches.
    pub(crate) weight: f64,
    /// By the name of the parameter: of its numbers that other ranks update, one behind the other.
    pub(crate) of: BTreeMap<String, Vec<E>>,
}

impl<E> Default for RoundingErrors<E> {
    fn default() -> Self {
        Self {
            weight: 1.0,
            of: BTreeMap::new(),
        }
    }
}

impl<E: Element> RoundingErrors<E> {
    /// Makes them those of a step whose batches have another weight.
    pub(super) fn set_weight(&mut self, weight: f64) {
        if self.weight != weight {
            let factor = E::of(weight / self.weight);
            for errors in self.of.values_mut() {
                elementwise::scale(factor, errors);
            }
            self.weight = weight;
        }
    }

    /// The errors of a range of a gradient that another rank than this one updates: 0 at first.
    pub(super) fn part(&mut self, of: &Exchanged, rank: usize, range: Range<usize>) -> &mut [E] {
        let own = of.owners.range(rank);
        let before = if range.start < own.end { 0 } else { own.len() };
        if !self.of.contains_key(&of.name) {
            let zeros = vec![E::zero(); of.owners.len() - own.len()];
            self.of.insert(of.name.clone(), zeros);
        }
        match self.of.get_mut(&of.name) {
            Some(errors) => &mut errors[range.start - before..range.end - before],
            None => &mut [],
        }
    }

    /// Drops those of other gradients than these.
    pub(super) fn keep<'a>(&mut self, rank: usize, all: impl Iterator<Item = &'a Exchanged>) {
        let lens = all.map(|of| {
            let others = of.owners.len() - of.owners.range(rank).len();
            (of.name.as_str(), others)
        });
        let lens: BTreeMap<_, _> = lens.collect();
        self.of
            .retain(|name, errors| lens.get(name.as_str()) == Some(&errors.len()));
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.of.values().map(Vec::len).sum()
    }
}
