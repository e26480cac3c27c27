//! Sparse normalizers: a threshold `τ` for every row, below which a weight is exactly 0.
//!
//! ```text
//! sparsemax    d = max(s - τ, 0)        p = d        g = 1 where d > 0
//! entmax15     d = max(s / 2 - τ, 0)    p = d²       g = d
//! ```
//!
//! Martins and Astudillo, "From softmax to sparsemax" (2016); Peters, Niculae and Martins, "Sparse sequence-to-sequence
//! models" (2019), with `α = 1.5`. The weights of a row have the sum 1 if the norm `‖d‖` of order 1, or of order 2, is 1.
//! That norm is convex in `τ` and falls, so that Newton's method climbs to the root from below and never passes it, in a
//! few steps: once it has the support right, sparsemax needs one.
//!
//! The derivative has the form that softmax has, with `g` in place of `p`:
//!
//! ```text
//! ds = g (dp - δ)        δ = Σ g dp / Σ g = dout · centre        centre = Σ g v / Σ g
//! ```
//!
//! where dropout multiplies `dp`, and so `v`, but not the sum of all `g`. The centre is an output as any other, of
//! weights `g / Σ g`, and is computed as one.

use std::cmp::Ordering;

use super::softmax_state::{OnlineSoftmaxState, finite_pivot, is_hidden};
use crate::simd::slice::{self, load_any, load_filled, store_any};
use crate::simd::{Kernel, MatrixMut, Real, Vector};

/// A sparse normalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sparse {
    Max,
    Entmax15,
}

/// The functions in which sparsemax and entmax differ.
trait Family {
    /// The factor of a score.
    const SCALE: f64;

    /// `p`
    fn weight<V: Vector>(d: V) -> V;

    /// `g`
    fn slope<V: Vector>(d: V) -> V;

    /// `(‖d‖ - 1) ‖d‖^(order - 1)`, of `Σ p`: divided by `Σ g`, the step of Newton's method.
    fn excess<E: Real>(sum: E) -> E;
}

struct Sparsemax;

impl Family for Sparsemax {
    const SCALE: f64 = 1.0;

    #[inline(always)]
    fn weight<V: Vector>(d: V) -> V {
        d
    }

    #[inline(always)]
    fn slope<V: Vector>(d: V) -> V {
        // NaN stays what it is.
        V::select(d.gt(V::zero()), V::splat(V::Element::ONE), d)
    }

    #[inline(always)]
    fn excess<E: Real>(sum: E) -> E {
        sum - E::ONE
    }
}

struct Entmax15;

impl Family for Entmax15 {
    const SCALE: f64 = 0.5;

    #[inline(always)]
    fn weight<V: Vector>(d: V) -> V {
        d * d
    }

    #[inline(always)]
    fn slope<V: Vector>(d: V) -> V {
        d
    }

    #[inline(always)]
    fn excess<E: Real>(sum: E) -> E {
        let wide: f64 = sum.into();
        E::of_f64(wide - wide.sqrt())
    }
}

impl Sparse {
    /// The weight of a score and its slope `g`, under the threshold of the row.
    #[inline(always)]
    pub(super) fn weight_and_slope<V: Vector>(self, score: V, tau: V) -> (V, V) {
        match self {
            Self::Max => weight_and_slope::<Sparsemax, V>(score, V::zero(), tau),
            Self::Entmax15 => weight_and_slope::<Entmax15, V>(score, V::zero(), tau),
        }
    }
}

/// `p` and `g` of a score, where `τ` is above `pivot`.
#[inline(always)]
fn weight_and_slope<F: Family, V: Vector>(score: V, pivot: V, tau: V) -> (V, V) {
    let z = (score - pivot) * V::splat(V::Element::of_f64(F::SCALE));
    // NaN passes, but where nothing is attended to.
    let none = z.le(tau) | is_hidden(score);
    let d = V::select(none, V::zero(), z - tau);
    (F::weight(d), F::slope(d))
}

/// Scores to weights, in place: of all keys that a block of queries visits.
pub(super) struct Sparsify<'a, E> {
    pub normalizer: Sparse,
    /// `[queries, keys]`
    pub scores: MatrixMut<'a, E>,
    /// The sum of the weights is 1, at the logarithm `τ`; or 0, at -∞, where there is no score.
    pub running: &'a mut OnlineSoftmaxState<E>,
}

impl<E: Real> Kernel for Sparsify<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        match self.normalizer {
            Sparse::Max => self.rows::<Sparsemax, V>(),
            Sparse::Entmax15 => self.rows::<Entmax15, V>(),
        }
    }
}

impl<E: Real> Sparsify<'_, E> {
    #[inline(always)]
    fn rows<F: Family, V: Vector<Element = E>>(mut self) {
        for row in 0..self.scores.rows() {
            let scores = self.scores.row_mut(row);
            let max = slice::max::<V>(scores);
            let pivot = finite_pivot(max);
            let tau = threshold::<F, V>(scores, pivot);
            for scores in scores.chunks_mut(V::LANES) {
                let pivot = V::splat(pivot);
                let tau = V::splat(tau);
                let (weight, _) = weight_and_slope::<F, V>(load_any(scores), pivot, tau);
                store_any(weight, scores);
            }
            self.running.max[row] = max;
            self.running.sum[row] = E::ZERO;
            if max != -E::INFINITY {
                self.running.max[row] = pivot * E::of_f64(F::SCALE) + tau;
                self.running.sum[row] = E::ONE;
            }
        }
    }
}

/// `τ` above the pivot, which is the largest score: at that, `d` is at most 1, and so `τ` is at least -1.
#[inline(always)]
fn threshold<F: Family, V: Vector>(scores: &[V::Element], pivot: V::Element) -> V::Element {
    let mut tau = -V::Element::ONE;
    loop {
        let [sum, slope] = sums::<F, V>(scores, pivot, tau);
        let next = tau + F::excess(sum) / slope;
        match next.partial_cmp(&tau) {
            Some(Ordering::Greater) => tau = next,
            // As near as rounding lets it come.
            Some(_) => return tau,
            None => return next,
        }
    }
}

/// `Σ p` and `Σ g`
#[inline(always)]
fn sums<F: Family, V: Vector>(
    scores: &[V::Element],
    pivot: V::Element,
    tau: V::Element,
) -> [V::Element; 2] {
    let mut weights = V::zero();
    let mut slopes = V::zero();
    for scores in scores.chunks(V::LANES) {
        let score = load_filled::<V>(scores, -V::Element::INFINITY);
        let (weight, slope) = weight_and_slope::<F, V>(score, V::splat(pivot), V::splat(tau));
        weights += weight;
        slopes += slope;
    }
    [weights, slopes].map(V::reduce_sum)
}

/// Scores to slopes `g`, in place, and what is added up of them.
pub(super) struct Slopes<'a, E> {
    pub normalizer: Sparse,
    /// `[queries]`
    pub tau: &'a [E],
    /// `[queries, keys]`
    pub scores: MatrixMut<'a, E>,
    pub running: &'a mut OnlineSoftmaxState<E>,
}

impl<E: Real> Kernel for Slopes<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.scores.rows() {
            let tau = V::splat(self.tau[row]);
            let mut sum = V::zero();
            for scores in self.scores.row_mut(row).chunks_mut(V::LANES) {
                let score = load_filled::<V>(scores, -E::INFINITY);
                let (_, slope) = self.normalizer.weight_and_slope(score, tau);
                sum += slope;
                store_any(slope, scores);
            }
            self.running.sum[row] += sum.reduce_sum();
        }
    }
}
