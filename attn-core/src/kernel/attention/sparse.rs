//! Sparse normalizers: a threshold `τ` for every row, below which a weight is exactly 0.
//!
//! ```text
//! sparsemax    d = max(s - τ, 0)        p = d        g = 1 where d > 0
//! entmax15     d = max(s / 2 - τ, 0)    p = d²       g = d
//! ```
//!
//! Martins and Astudillo, "From softmax to sparsemax" (2016); Peters, Niculae and Martins, "Sparse sequence-to-sequence models"
//! (2019), with `α = 1.5`. The weights of a row have the sum 1 if the norm `‖d‖` of order 1, or of order 2, is 1. The norm is
//! convex in `τ` and decreasing. So Newton's method approaches the root from below and never passes it, in a few steps: with the
//! right support, sparsemax needs one.
//!
//! The derivative has the form of softmax's, with `g` in place of `p`:
//!
//! ```text
//! ds = g (dp - δ)        δ = Σ g dp / Σ g = dout · centre        centre = Σ g v / Σ g
//! ```
//!
//! where dropout multiplies `dp`, and so `v`, but not the sum of all `g`. The centre is a weighted mean like the output, with the
//! weights `g / Σ g`, and is computed in the same way. Gradients of the weights are a part of `dp`. That of the threshold itself,
//! `dτ/ds = g / Σ g` or half of that, is one more term of `δ`.

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

/// The functions that differ between sparsemax and entmax.
trait Entmax {
    /// The factor of a score.
    const SCALE: f64;

    /// `p`
    fn weight<V: Vector>(d: V) -> V;

    /// `g`
    fn slope<V: Vector>(d: V) -> V;

    /// `(‖d‖ - 1) ‖d‖^(order - 1)`, from `Σ p`. Divided by `Σ g`, it is the step of Newton's method.
    fn excess<E: Real>(sum: E) -> E;
}

struct Sparsemax;

impl Entmax for Sparsemax {
    const SCALE: f64 = 1.0;

    #[inline(always)]
    fn weight<V: Vector>(d: V) -> V {
        d
    }

    #[inline(always)]
    fn slope<V: Vector>(d: V) -> V {
        // NaN is preserved.
        V::select(d.gt(V::zero()), V::splat(V::Element::ONE), d)
    }

    #[inline(always)]
    fn excess<E: Real>(sum: E) -> E {
        sum - E::ONE
    }
}

struct Entmax15;

impl Entmax for Entmax15 {
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
    /// The slope of a threshold, of the scores that are above it: this is divided by their number, or by the sum of their `g`.
    pub(super) fn scale<E: Real>(self) -> E {
        E::of_f64(match self {
            Self::Max => Sparsemax::SCALE,
            Self::Entmax15 => Entmax15::SCALE,
        })
    }

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
fn weight_and_slope<F: Entmax, V: Vector>(score: V, pivot: V, tau: V) -> (V, V) {
    let z = (score - pivot) * V::splat(V::Element::of_f64(F::SCALE));
    // NaN is preserved, except where the score is masked.
    let none = z.le(tau) | is_hidden(score);
    let d = V::select(none, V::zero(), z - tau);
    (F::weight(d), F::slope(d))
}

/// Turns scores into weights, in place, over all keys that a block of queries visits.
pub(super) struct Sparsify<'a, E> {
    pub normalizer: Sparse,
    /// `[queries, keys]`
    pub scores: MatrixMut<'a, E>,
    /// The sum of the weights is 1, at the logarithm `τ`, or 0 at -∞ if there is no score.
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
    fn rows<F: Entmax, V: Vector<Element = E>>(mut self) {
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

/// `τ` above the pivot, which is the largest score. There `d` is at most 1, so `τ` is at least -1.
#[inline(always)]
fn threshold<F: Entmax, V: Vector>(scores: &[V::Element], pivot: V::Element) -> V::Element {
    let mut tau = -V::Element::ONE;
    loop {
        let [sum, slope] = sums::<F, V>(scores, pivot, tau);
        let next = tau + F::excess(sum) / slope;
        match next.partial_cmp(&tau) {
            Some(Ordering::Greater) => tau = next,
            // Rounding prevents a further step.
            Some(_) => return tau,
            None => return next,
        }
    }
}

/// `Σ p` and `Σ g`
#[inline(always)]
fn sums<F: Entmax, V: Vector>(
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

/// Turns scores into slopes `g`, in place, and sums them.
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
