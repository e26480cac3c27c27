//! Who updates which numbers, and in which order they are exchanged.

use std::{cmp::Reverse, ops::Range};

use crate::fused::Slot;

/// Parameters are cut behind multiples of so many numbers: a cache line of `f32`, so no vector of a kernel is cut.
const UNIT: usize = 16;

/// A parameter, as far as shards know it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: String,
    /// The number of its elements.
    pub(super) len: usize,
    /// Parameters with the same one have the same gradient, and the same owners.
    pub(super) group: usize,
    pub(super) is_trained: bool,
    /// Whether the numbers of its update depend on each other, so that one rank updates all of them.
    pub(super) is_whole: bool,
    /// Where its gradient is, which is the sum of these; nowhere if it is that of a parameter before it.
    pub(super) slots: Vec<Slot>,
}

/// The shards of all ranks.
///
/// Each rank has an equal range of every parameter, in the order of the ranks. Of the parameters that some algorithms update as a whole, the
/// largest ones are given out first, each to the rank that has least. Neither depends on the buckets.
#[derive(Debug)]
pub(super) struct Shards {
    /// The ranks that update each parameter.
    owners: Vec<Owners>,
    /// What is exchanged at a time: the last parameters first, whose gradients are known first.
    buckets: Vec<Bucket>,
}

/// Parameters that are exchanged at a time.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) parameters: Range<usize>,
    /// Their gradients.
    pub(super) gradients: Vec<Exchanged>,
}

/// A gradient that is exchanged.
#[derive(Debug)]
pub(super) struct Exchanged {
    /// The name of its parameter.
    pub(super) name: String,
    /// The ranks that get it.
    pub(super) owners: Owners,
    /// The places that it is the sum of, the first of which has it.
    pub(super) slots: Vec<Slot>,
}

/// The ranks that update a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owners {
    /// One rank updates all numbers.
    One { rank: usize, len: usize },
    /// Each rank updates a range. The ranks from `first` on have a unit more than the others, as far as there are more units.
    All {
        first: usize,
        ranks: usize,
        len: usize,
    },
}

impl Owners {
    /// The range of the parameter that a rank updates.
    pub(super) fn range(self, rank: usize) -> Range<usize> {
        match self {
            Self::One { rank: owner, len } if rank == owner => 0..len,
            Self::One { len, .. } => len..len,
            Self::All { len, .. } => {
                let [start, end] = [rank, rank + 1].map(|rank| len.min(UNIT * self.units(rank)));
                start..end
            }
        }
    }

    /// The number of the parameter's elements.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::One { len, .. } | Self::All { len, .. } => len,
        }
    }

    /// How many units the ranks before one have.
    fn units(self, rank: usize) -> usize {
        let Self::All { first, ranks, len } = self else {
            return 0;
        };
        let units = len.div_ceil(UNIT);
        let (each, more) = (units / ranks, units % ranks);
        let behind_the_last = (first + more).saturating_sub(ranks);
        rank * each + rank.saturating_sub(first).min(more) + rank.min(behind_the_last)
    }
}

impl Shards {
    pub(super) fn new(parts: &[Part], ranks: usize, bucket_len: usize) -> Self {
        let owners = owners(parts, ranks);
        let exchanged = |(part, owners): (&Part, &Owners)| Exchanged {
            name: part.name.clone(),
            owners: *owners,
            slots: part.slots.clone(),
        };
        let buckets = buckets(parts, bucket_len).into_iter();
        let buckets = buckets.map(|parameters| {
            let of = parts[parameters.clone()]
                .iter()
                .zip(&owners[parameters.clone()]);
            let gradients = of.filter(|(part, _)| part.is_trained && !part.slots.is_empty());
            Bucket {
                gradients: gradients.map(exchanged).collect(),
                parameters,
            }
        });
        Self {
            buckets: buckets.collect(),
            owners,
        }
    }

    /// The range of a parameter that a rank updates.
    pub(super) fn range(&self, parameter: usize, rank: usize) -> Range<usize> {
        self.owners[parameter].range(rank)
    }

    /// Whether each rank updates a range of a parameter.
    pub(super) fn cuts(&self, parameter: usize) -> bool {
        matches!(self.owners[parameter], Owners::All { .. })
    }

    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
}

fn owners(parts: &[Part], ranks: usize) -> Vec<Owners> {
    let groups = parts.iter().map(|part| part.group + 1).max().unwrap_or(0);
    let mut lens = vec![0; groups];
    let mut is_whole = vec![false; groups];
    let mut weights = vec![0; groups];
    for part in parts {
        lens[part.group] = part.len;
        is_whole[part.group] |= part.is_whole;
        weights[part.group] += part.len * usize::from(part.is_trained);
    }
    let mut first = 0;
    let of_group = lens.iter().map(|&len| {
        let owners = Owners::All { first, ranks, len };
        first = (first + len.div_ceil(UNIT)) % ranks;
        owners
    });
    let mut of_group: Vec<_> = of_group.collect();
    let mut by_size: Vec<_> = (0..groups).filter(|group| is_whole[*group]).collect();
    by_size.sort_by_key(|group| Reverse(weights[*group]));
    let mut loads = vec![0; ranks];
    for group in by_size {
        let rank = (0..ranks).min_by_key(|rank| loads[*rank]).unwrap_or(0);
        loads[rank] += weights[group];
        let len = lens[group];
        of_group[group] = Owners::One { rank, len };
    }
    parts.iter().map(|part| of_group[part.group]).collect()
}

fn buckets(parts: &[Part], bucket_len: usize) -> Vec<Range<usize>> {
    let mut buckets = Vec::new();
    let (mut end, mut len) = (parts.len(), 0);
    for (index, part) in parts.iter().enumerate().rev() {
        if part.is_trained {
            len += part.len;
        }
        if len >= bucket_len.max(1) || index == 0 {
            buckets.push(index..end);
            (end, len) = (index, 0);
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(lens: &[usize]) -> Vec<Part> {
        let part = |(group, len): (usize, &usize)| Part {
            name: group.to_string(),
            len: *len,
            group,
            is_trained: true,
            is_whole: false,
            slots: Vec::new(),
        };
        lens.iter().enumerate().map(part).collect()
    }

    fn whole(lens: &[usize]) -> Vec<Part> {
        let mut parts = parts(lens);
        parts.iter_mut().for_each(|part| part.is_whole = true);
        parts
    }

    /// The rank that updates a whole parameter.
    fn owner(shards: &Shards, parameter: usize, ranks: usize) -> usize {
        let mut owners = (0..ranks).filter(|rank| !shards.range(parameter, *rank).is_empty());
        let owner = owners.next().unwrap();
        assert_eq!(owners.next(), None);
        owner
    }

    #[test]
    fn ranges_follow_each_other_and_are_equal() {
        let lens = [1000, 1, 0, 77, 16, 4096, 15, 3, 33];
        for ranks in 1..=9 {
            let shards = Shards::new(&parts(&lens), ranks, 4);
            let mut loads = vec![0; ranks];
            for (index, len) in lens.iter().enumerate() {
                let mut end = 0;
                for (rank, load) in loads.iter_mut().enumerate() {
                    let range = shards.range(index, rank);
                    assert_eq!(range.start, end);
                    assert!(range.end.is_multiple_of(UNIT) || range.end == *len);
                    end = range.end;
                    *load += range.len().div_ceil(UNIT);
                }
                assert_eq!(end, *len);
            }
            let least = loads.iter().min().unwrap();
            assert!(
                loads.iter().all(|load| *load <= least + 1),
                "{ranks}: {loads:?}"
            );
        }
    }

    #[test]
    fn whole_parameters_are_balanced() {
        let lens = [9, 1, 5, 4, 1, 1, 3];
        let shards = Shards::new(&whole(&lens), 3, 4);
        let mut loads = [0; 3];
        for (index, len) in lens.iter().enumerate() {
            loads[owner(&shards, index, 3)] += len;
        }
        assert_eq!(loads, [9, 8, 7]);
    }

    #[test]
    fn tied_parameters_have_the_same_owners_and_frozen_ones_no_weight() {
        let mut all = whole(&[8, 2, 8, 6]);
        all[2].group = 0;
        all[3].is_trained = false;
        let shards = Shards::new(&all, 2, 4);
        let owner = |parameter| owner(&shards, parameter, 2);
        assert_eq!(owner(0), owner(2));
        assert_ne!(owner(0), owner(1));
        assert_eq!(owner(3), owner(1));
        let mut all = parts(&[40, 24, 40]);
        all[2].group = 0;
        let shards = Shards::new(&all, 2, 4);
        for rank in 0..2 {
            assert_eq!(shards.range(0, rank), shards.range(2, rank));
        }
        all[2].is_whole = true;
        let shards = Shards::new(&all, 2, 4);
        assert_eq!([0, 2].map(|of| shards.range(of, 0)), [0..40, 0..40]);
    }

    #[test]
    fn buckets_have_all_parameters_once_from_the_last_on() {
        let shards = Shards::new(&parts(&[10, 1, 20, 2, 3]), 2, 20);
        let buckets = shards.buckets().iter();
        assert!(buckets.map(|of| of.parameters.clone()).eq([2..5, 0..2]));
        assert!(Shards::new(&[], 2, 4).buckets().is_empty());
    }
}
