//! Masks and scores on tiles, as the kernels call them.
//!
//! The kernels make one virtual call per tile, which costs nothing. So the kernels are compiled once, not for every layer.

use std::ops::Range;

use super::pair_traits::{Coverage, MAX_BIAS_TERMS, Mask, Score, ScoreSums, SumLens, TileOrigin};
use crate::simd::{
    Kernel, Matrix, MatrixMut, Real, Vector, math, run,
    slice::{load_any, store_any},
};

/// The number of keys whose bias terms are written at once, a multiple of every number of lanes. All bias terms fit the
/// first-level cache.
const SPAN: usize = 128;

/// A [`Mask`] on tiles.
pub trait TileMask<E>: Sync {
    /// [`Mask::coverage`]
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage;

    /// Sets the scores of masked pairs to -∞.
    fn hide(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>);
}

impl<E: Real, M: Mask> TileMask<E> for M {
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        Mask::coverage(self, b, h, q, k)
    }

    fn hide(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>) {
        run(Hide {
            mask: self,
            at,
            scores,
        });
    }
}

struct Hide<'a, 'm, E, M> {
    mask: &'a M,
    at: TileOrigin,
    scores: &'a mut MatrixMut<'m, E>,
}

impl<E: Real, M: Mask> Kernel for Hide<'_, '_, E, M> {
    type Element = E;
    type Output = ();

    // Plain Rust: the compiler vectorises comparisons of indices.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let TileOrigin { b, h, q, k } = self.at;
        for row in 0..self.scores.rows() {
            let scores = self.scores.row_mut(row);
            let q = q + row;
            for (k, score) in (k..k + scores.len()).zip(scores) {
                let attends = self.mask.attends(b, h, q, k);
                *score = if attends { *score } else { -E::INFINITY };
            }
        }
    }
}

/// A [`Score`] on tiles.
pub trait TileScore<E>: Sync {
    /// Modifies the scores in place.
    fn apply(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>);

    /// Turns the gradient of the modified scores into that of the scores, in place. Where the former is 0, so is the latter. The
    /// gradients of learned bias terms are added to `sums`, if there are any.
    fn backward(
        &self,
        at: TileOrigin,
        scores: Matrix<'_, E>,
        d: &mut MatrixMut<'_, E>,
        sums: Option<ScoreSums<'_, E>>,
    );

    /// [`Score::sums`]
    fn sums(&self) -> SumLens;
}

impl<E: Real, F: Score<E>> TileScore<E> for F {
    fn apply(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>) {
        run(Apply {
            score: self,
            at,
            scores,
        });
    }

    fn backward(
        &self,
        at: TileOrigin,
        scores: Matrix<'_, E>,
        d: &mut MatrixMut<'_, E>,
        sums: Option<ScoreSums<'_, E>>,
    ) {
        run(Backward {
            score: self,
            at,
            scores,
            d,
            sums,
        });
    }

    fn sums(&self) -> SumLens {
        Score::sums(self)
    }
}

/// The bias terms of the keys of a span of a row.
type Rows<E> = [[E; SPAN]; MAX_BIAS_TERMS];

/// The bias terms of some keys of a row: the stored ones of the score, others in `rows`.
#[inline(always)]
fn bias_terms<'a, E: Real, F: Score<E>>(
    score: &'a F,
    at: TileOrigin,
    len: usize,
    rows: &'a mut Rows<E>,
) -> [&'a [E]; MAX_BIAS_TERMS] {
    const {
        assert!(
            F::BIAS_TERMS <= MAX_BIAS_TERMS,
            "a score with too many bias_terms"
        )
    };
    let mut bias_terms: [&[E]; MAX_BIAS_TERMS] = [&[]; MAX_BIAS_TERMS];
    let rows = bias_terms.iter_mut().zip(rows).enumerate();
    for (bias_term, (numbers, row)) in rows.take(F::BIAS_TERMS) {
        *numbers = score.stored(bias_term, at, len).unwrap_or_else(|| {
            score.bias_term(bias_term, at, &mut row[..len]);
            &row[..len]
        });
    }
    bias_terms
}

/// A vector of each bias term, starting at a key.
#[inline(always)]
fn load<V: Vector>(bias_terms: &[&[V::Element]], from: usize) -> [V; MAX_BIAS_TERMS] {
    let mut vectors = [V::zero(); MAX_BIAS_TERMS];
    for (vector, bias_term) in vectors.iter_mut().zip(bias_terms) {
        *vector = load_any(&bias_term[from..]);
    }
    vectors
}

struct Apply<'a, 'm, E, F> {
    score: &'a F,
    at: TileOrigin,
    scores: &'a mut MatrixMut<'m, E>,
}

impl<E: Real, F: Score<E>> Kernel for Apply<'_, '_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let mut rows = [[E::ZERO; SPAN]; MAX_BIAS_TERMS];
        for row in 0..self.scores.rows() {
            for (span, scores) in self.scores.row_mut(row).chunks_mut(SPAN).enumerate() {
                let at = self.at.later(row, span * SPAN);
                let bias_terms = bias_terms(self.score, at, scores.len(), &mut rows);
                for (lane, scores) in scores.chunks_mut(V::LANES).enumerate() {
                    let bias_terms = load::<V>(&bias_terms[..F::BIAS_TERMS], lane * V::LANES);
                    let score = load_any::<V>(scores);
                    store_any(
                        self.score.value(score, &bias_terms[..F::BIAS_TERMS]),
                        scores,
                    );
                }
            }
        }
    }
}

struct Backward<'a, 'm, E, F> {
    score: &'a F,
    at: TileOrigin,
    scores: Matrix<'a, E>,
    d: &'a mut MatrixMut<'m, E>,
    sums: Option<ScoreSums<'a, E>>,
}

impl<E: Real, F: Score<E>> Kernel for Backward<'_, '_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let mut rows = [[E::ZERO; SPAN]; MAX_BIAS_TERMS];
        let mut d_rows = [[E::ZERO; SPAN]; MAX_BIAS_TERMS];
        for row in 0..self.d.rows() {
            let scores = self.scores.row(row).chunks(SPAN);
            let d = self.d.row_mut(row).chunks_mut(SPAN);
            for (span, (scores, d)) in scores.zip(d).enumerate() {
                let at = self.at.later(row, span * SPAN);
                let len = d.len();
                let bias_terms = bias_terms(self.score, at, len, &mut rows);
                let d_bias_terms = self.sums.is_some().then_some(&mut d_rows);
                differentiate::<V, F>(
                    self.score,
                    &bias_terms[..F::BIAS_TERMS],
                    scores,
                    d,
                    d_bias_terms,
                );
                if let Some(sums) = &mut self.sums {
                    for (bias_term, d) in d_rows.iter().enumerate().take(F::BIAS_TERMS) {
                        if self.score.is_learned(bias_term) {
                            let sums = sums.reborrow();
                            self.score.add_gradient(bias_term, at, &d[..len], sums);
                        }
                    }
                }
            }
        }
    }
}

/// Turns the gradients of the modified scores into those of the scores, in place, and computes those of the learned bias terms.
#[inline(always)]
fn differentiate<V: Vector, F: Score<V::Element>>(
    function: &F,
    bias_terms: &[&[V::Element]],
    scores: &[V::Element],
    d: &mut [V::Element],
    mut d_bias_terms: Option<&mut Rows<V::Element>>,
) {
    let vectors = scores.chunks(V::LANES).zip(d.chunks_mut(V::LANES));
    for (lane, (scores, d)) in vectors.enumerate() {
        let from = lane * V::LANES;
        let bias_terms = load::<V>(bias_terms, lane * V::LANES);
        let score = load_any::<V>(scores);
        let bias_terms = &bias_terms[..F::BIAS_TERMS];
        let d_value = load_any::<V>(d);
        // The derivative at a masked score may be anything.
        let none = d_value.eq(V::zero());
        for (bias_term, row) in d_bias_terms
            .iter_mut()
            .flat_map(|rows| rows.iter_mut())
            .enumerate()
            .take(F::BIAS_TERMS)
        {
            if function.is_learned(bias_term) {
                let derivative = function.bias_term_derivative(bias_term, score, bias_terms);
                V::select(none, V::zero(), d_value * derivative).store(&mut row[from..]);
            }
        }
        let d_score = d_value * function.derivative(score, bias_terms);
        let none = none | math::is_negligible(d_score);
        store_any(V::select(none, V::zero(), d_score), d);
    }
}
