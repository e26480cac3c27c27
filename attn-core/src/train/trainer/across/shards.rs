//! Who updates which parameter, and in which order they are exchanged.

use std::{cmp::Reverse, ops::Range};

/// The bytes that are exchanged at a time, at least. PyTorch: `bucket_cap_mb` of `DistributedDataParallel`.
const BUCKET: usize = 25 << 20;

/// A trained parameter, as far as shards know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The number of its elements.
    pub(super) len: usize,
    /// Parameters with the same one have the same gradient, and one owner.
    pub(super) group: usize,
    pub(super) is_trained: bool,
}

/// The shards of all ranks.
///
/// A shard has whole parameters, which some algorithms need. The largest ones are given out first, each to the rank that has least: so
/// those of a layer are spread over the ranks, which all receive at the same time.
#[derive(Debug)]
pub(super) struct Shards {
    /// The rank that updates each parameter.
    owners: Vec<usize>,
    /// The parameters that are exchanged at a time: the last ones first, whose gradients are known first.
    buckets: Vec<Range<usize>>,
}

impl Shards {
    pub(super) fn new(parts: &[Part], ranks: usize, bytes_of_number: usize) -> Self {
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
        Self {
            owners: parts.iter().map(|part| owner_of[part.group]).collect(),
            buckets: buckets(parts, bytes_of_number),
        }
    }

    pub(super) fn owner(&self, parameter: usize) -> usize {
        self.owners[parameter]
    }

    pub(super) fn buckets(&self) -> &[Range<usize>] {
        &self.buckets
    }
}

fn buckets(parts: &[Part], bytes_of_number: usize) -> Vec<Range<usize>> {
    let mut buckets = Vec::new();
    let (mut end, mut bytes) = (parts.len(), 0);
    for (index, part) in parts.iter().enumerate().rev() {
        if part.is_trained {
            bytes += part.len * bytes_of_number;
        }
        if bytes >= BUCKET || index == 0 {
            buckets.push(index..end);
            (end, bytes) = (index, 0);
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
        let shards = Shards::new(&parts(&[10, 1, BUCKET, 2, 3]), 2, 1);
        assert_eq!(shards.buckets(), [2..5, 0..2]);
        assert!(Shards::new(&[], 2, 4).buckets().is_empty());
    }
}
