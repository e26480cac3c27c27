//! The state of an online softmax, and how the normalizers read a score.

use super::Normalizer;
use super::plan::QUERIES;
use crate::simd::{Real, Vector};

/// The running maximum and sum of each row of a block of queries, after some of the keys.
#[derive(Clone, Debug)]
pub(super) struct OnlineSoftmaxState<E> {
    pub(super) max: [E; QUERIES],
    pub(super) sum: [E; QUERIES],
}

impl<E: Real> OnlineSoftmaxState<E> {
    /// Before the first key of a head: a sink is one of value 0.
    pub(super) fn new(normalizer: Normalizer<'_, E>, head: usize) -> Self {
        let (max, sum) = match normalizer {
            // The logarithm of a sum that is not used is 0.
            Normalizer::Identity => (E::ZERO, E::ONE),
            _ => match normalizer.sink(head) {
                Some(sink) => (sink, E::ONE),
                None => (-E::INFINITY, E::ZERO),
            },
        };
        Self {
            max: [max; QUERIES],
            sum: [sum; QUERIES],
        }
    }
}

impl<E: Real> Normalizer<'_, E> {
    /// The score of a key that every query of a head attends to, and whose value is 0.
    fn sink(self, head: usize) -> Option<E> {
        match self {
            Self::Softmax1 => Some(E::ZERO),
            Self::Sink(sink) => Some(sink[head]),
            _ => None,
        }
    }
}

/// The number that is subtracted from scores before the exponential: their maximum, unless there are none.
#[inline(always)]
pub(super) fn finite_pivot<E: Real>(max: E) -> E {
    if max == -E::INFINITY { E::ZERO } else { max }
}

/// Where a score says that nothing is attended to.
#[inline(always)]
pub(super) fn is_hidden<V: Vector>(score: V) -> V::Mask {
    score.eq(V::splat(-V::Element::INFINITY))
}
