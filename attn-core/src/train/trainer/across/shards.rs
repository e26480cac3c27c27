//! Who updates which parameter, and in which order they are exchanged.

use std::{cmp::Reverse, ops::Range};

use crate::fused::Slot;

/// The bytes that are exchanged at a time, at least, unless the user chooses others.
pub(in crate::train::trainer) const BUCKET_BYTES: usize = 4 << 20;

/// A trained parameter, as far as shards know it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The number of its elements.
    pub(super) len: usize,
    /// Parameters with the same one have the same gradient, and one owner.
    pub(super) group: usize,
    pub(super) is_trained: bool,
    /// Where its gradient is, which is the sum of these; nowhere if it is that of a parameter before it.
    pub(super) slots: Vec<Slot>,
}

/// The shards of all ranks.
///
/// A shard has whole parameters, which some algorithms need. The largest ones are given out first, each to the rank that has least: so
/// those of a layer are spread over the ranks, which all receive at the same time.
#[derive(Debug)]
pub(super) struct Shards {
    /// The rank that updates each parameter.
    owners: Vec<usize>,
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
    /// The rank that gets it.
    pub(super) owner: usize,
    pub(super) len: usize,
    /// The places that it is the sum of, the first of which has it.
    pub(super) slots: Vec<Slot>,
}

impl Shards {
    pub(super) fn new(parts: &[Part], ranks: usize, bucket_len: usize) -> Self {
        let groups = parts.iter().map(|part| part.group + 1).max().unwrap_or(0);
        let mut sizes = vec![0; groups];
        for part in parts.iter().filter(|part| part.is_trained) {
            sizes[part.group] += part.len;
        }
        let mut by_size: Vec<_> = (0..groups).collect();
        by_size.sort_by_key(|group| Reverse(sizes[*group]));
        let mut loads = vec![0; ranks];
        let mut owner_of = vec![0; groups];
        for group in by_size {
            let least = (0..ranks).min_by_key(|rank| loads[*rank]).unwrap_or(0);
            owner_of[group] = least;
            loads[least] += sizes[group];
        }
        let exchanged = |part: &Part| Exchanged {
            owner: owner_of[part.group],
            len: part.len,
            slots: part.slots.clone(),
        };
        let buckets = buckets(parts, bucket_len).into_iter();
        let buckets = buckets.map(|parameters| {
            let of = parts[parameters.clone()].iter();
            let gradients = of.filter(|part| part.is_trained && !part.slots.is_empty());
            Bucket {
                gradients: gradients.map(exchanged).collect(),
                parameters,
            }
        });
        Self {
            owners: parts.iter().map(|part| owner_of[part.group]).collect(),
            buckets: buckets.collect(),
        }
    }

    pub(super) fn owner(&self, parameter: usize) -> usize {
        self.owners[parameter]
    }

    pub(super) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }
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
            len: *len,
            group,
            is_trained: true,
            slots: Vec::new(),
        };
        lens.iter().enumerate().map(part).collect()
    }

    #[test]
    fn shards_are_balanced_and_whole() {
        let lens = [9, 1, 5, 4, 1, 1, 3];
        let shards = Shards::new(&parts(&lens), 3, 4);
        let mut loads = [0; 3];
        for (index, len) in lens.iter().enumerate() {
            loads[shards.owner(index)] += len;
        }
        assert_eq!(loads, [9, 8, 7]);
    }

    #[test]
    fn tied_parameters_have_one_owner_and_frozen_ones_no_weight() {
        let mut parts = parts(&[8, 2, 8, 6]);
        parts[2].group = 0;
        parts[3].is_trained = false;
        let shards = Shards::new(&parts, 2, 4);
        assert_eq!(shards.owner(0), shards.owner(2));
        assert_ne!(shards.owner(0), shards.owner(1));
        assert_eq!(shards.owner(3), shards.owner(1));
    }

    #[test]
    fn buckets_have_all_parameters_once_from_the_last_on() {
        let shards = Shards::new(&parts(&[10, 1, 20, 2, 3]), 2, 20);
        let buckets = shards.buckets().iter();
        assert!(buckets.map(|of| of.parameters.clone()).eq([2..5, 0..2]));
        assert!(Shards::new(&[], 2, 4).buckets().is_empty());
    }
}
