//! Masks and scores as functions of a query and a key. The macro emits the implementations.

use std::fmt;
use std::ops::Range;

use crate::simd::{Real, Vector};

/// A mask: it says which keys a query attends to.
pub trait Mask: Sync {
    /// Whether query `q` of head `h` and sequence `b` attends to key `k`. Mark it `#[inline(always)]`.
    fn attends(&self, b: usize, h: usize, q: usize, k: usize) -> bool;

    /// The coverage of a rectangle, found without looking at its elements. [`Coverage::Partial`] is always right. The ranges
    /// are never empty.
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage;
}

/// How much of a rectangle of queries and keys a mask lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Nothing: the rectangle need not be visited.
    Empty,
    /// Something, perhaps.
    Partial,
    /// Everything: the mask need not be asked.
    Full,
}

/// The mask that lets everything through.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl Mask for Everything {
    #[inline(always)]
    fn attends(&self, _: usize, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn coverage(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Coverage {
        Coverage::Full
    }
}

/// The most bias terms of a [`Score`].
pub const MAX_BIAS_TERMS: usize = 16;

/// A score modification, which is applied before the softmax: a function of the scaled product and of some numbers of the
/// place, its *bias terms*. Mark every method `#[inline(always)]`.
///
/// A bias term is a number that does not depend on the vectors of query and key: a position bias, a slope of the head, a
/// distance. It is computed at every place of the tiles that are visited, also where the mask hides the score. It may be any
/// number there, but its computation must not panic.
pub trait Score<E: Real>: Sync {
    /// How many bias terms there are, [`MAX_BIAS_TERMS`] or fewer.
    const BIAS_TERMS: usize = 0;

    /// Writes a bias term, of the query `at.q` and the keys from `at.k` on, one per element of `to`.
    fn bias_term(&self, _bias_term: usize, _at: TileOrigin, _to: &mut [E]) {}

    /// `len` numbers of a bias term that are in memory already. [`bias_term`](Self::bias_term), which would write the same, is then not
    /// called.
    fn stored(&self, _bias_term: usize, _at: TileOrigin, _len: usize) -> Option<&[E]> {
        None
    }

    /// The score, of the scaled product and all bias terms.
    fn value<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V;

    /// The derivative of [`value`](Self::value) with respect to `score`.
    fn derivative<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V;

    /// Whether a bias term is computed from learned numbers.
    fn is_learned(&self, _bias_term: usize) -> bool {
        false
    }

    /// The derivative of [`value`](Self::value) with respect to a learned bias term.
    fn bias_term_derivative<V: Vector<Element = E>>(
        &self,
        _bias_term: usize,
        _: V,
        _bias_terms: &[V],
    ) -> V {
        V::zero()
    }

    /// Adds to the gradients of the learned numbers of a bias term: `d` is the gradient of the numbers that
    /// [`bias_term`](Self::bias_term) wrote. Where `d` is 0, the other factor may be NaN, and the product must not be added.
    fn add_gradient(&self, _bias_term: usize, _at: TileOrigin, _d: &[E], _sums: ScoreSums<'_, E>) {}

    /// How many gradients [`add_gradient`](Self::add_gradient) adds to.
    fn sums(&self) -> SumLens {
        SumLens::default()
    }
}

/// Where the first element of a tile stands: row `i` and column `j` are query `q + i` and key `k + j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileOrigin {
    /// The sequence.
    pub b: usize,
    /// The query head.
    pub h: usize,
    /// The query of the first row.
    pub q: usize,
    /// The key of the first column.
    pub k: usize,
}

impl TileOrigin {
    /// The place so many queries and keys further on.
    #[inline(always)]
    pub(super) fn later(self, queries: usize, keys: usize) -> Self {
        let q = self.q + queries;
        let k = self.k + keys;
        Self { q, k, ..self }
    }

    /// Sequence, head, query and key, as functions of a spec read them.
    #[inline(always)]
    pub fn indices(self) -> [i64; 4] {
        [self.b, self.h, self.q, self.k].map(|index| index as i64)
    }
}

/// The numbers of gradients that learned bias terms add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumLens {
    /// The gradients that every query head has for itself.
    pub per_head: usize,
    /// The gradients that all heads share.
    pub shared: usize,
    /// The gradients that every query head of every sequence has for itself.
    pub per_sequence: usize,
    /// The numbers of which every pair has a gradient, that no other pair adds to.
    pub pairs: usize,
}

/// Where the gradients of learned bias terms are added up, as many as [`SumLens`] says.
#[derive(Debug)]
pub struct ScoreSums<'a, E> {
    /// The gradients of the query head of the place.
    pub per_head: &'a mut [E],
    /// The gradients of all heads.
    pub shared: &'a mut [E],
    /// The gradients of the query head of the sequence.
    pub per_sequence: &'a mut [E],
    /// The gradients of every pair, if there are any.
    pub pairs: Option<&'a dyn PairSink<E>>,
}

/// Where the gradients of pairs are written. Several threads write at the same time, but never that of one pair.
pub trait PairSink<E>: Sync + fmt::Debug {
    /// Writes the gradients of a number, one of [`SumLens::pairs`], of the query `at.q` and the keys from `at.k` on.
    fn write(&self, number: usize, at: TileOrigin, d: &[E]);
}

impl<E> ScoreSums<'_, E> {
    /// The same, for a while.
    #[inline(always)]
    pub fn reborrow(&mut self) -> ScoreSums<'_, E> {
        ScoreSums {
            per_head: self.per_head,
            shared: self.shared,
            per_sequence: self.per_sequence,
            pairs: self.pairs,
        }
    }
}
