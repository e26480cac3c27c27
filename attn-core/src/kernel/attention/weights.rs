//! The functions from scores to weights and back, over the rows of a tile.
//!
//! ```text
//! forward, softmax       m' = max(m, max s)      p = exp(s - m')      l' = l exp(m - m') + Σ p      out' = out exp(m - m') + p V
//! backward               ds = g (dp - δ)
//!   softmax              p = exp(s - lse)        g = p                δ = Σ p dp = Σ dout * out
//!   identity             p = s                   g = 1                δ = 0
//!   sparse               see there
//! ```
//!
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao, "FlashAttention-2" (2023), algorithms 1 and
//! 2. A score of -∞ is masked: its `p` and `ds` are 0, whatever `dp` is.

use super::Normalizer;
use super::dropout_mask::DropoutMask;
use super::plan::{QUERIES, TILE, Tile};
use super::softmax_state::{OnlineSoftmaxState, finite_pivot, is_hidden};
use super::sparse::Sparse;
use crate::simd::slice::{load_any, load_filled, store_any};
use crate::simd::{Kernel, Matrix, MatrixMut, Real, Vector, math, slice};

impl<E: Real> Normalizer<'_, E> {
    /// Whether this is a sparse one, and which.
    pub(super) fn sparse(self) -> Option<Sparse> {
        match self {
            Self::Sparsemax => Some(Sparse::Max),
            Self::Entmax15 => Some(Sparse::Entmax15),
            _ => None,
        }
    }
}

/// Turns scores into weights, in place, tile by tile. The weights of a softmax are not divided by the sum yet.
pub(super) struct OnlineSoftmax<'a, E> {
    pub normalizer: Normalizer<'a, E>,
    /// `[queries, keys]`
    pub scores: MatrixMut<'a, E>,
    pub running: &'a mut OnlineSoftmaxState<E>,
    /// The sums of earlier tiles, `[queries, value_width]`, which are rescaled to the new maximum.
    pub sums: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for OnlineSoftmax<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        match self.normalizer {
            Normalizer::Identity => self.identity::<V>(),
            _ => self.exponential::<V>(),
        }
    }
}

impl<E: Real> OnlineSoftmax<'_, E> {
    #[inline(always)]
    fn identity<V: Vector<Element = E>>(&mut self) {
        for row in 0..self.scores.rows() {
            for scores in self.scores.row_mut(row).chunks_mut(V::LANES) {
                store_any(Identity.weight_and_slope(load_any::<V>(scores)).0, scores);
            }
        }
    }

    #[inline(always)]
    fn exponential<V: Vector<Element = E>>(&mut self) {
        let mut sums = [E::ZERO; QUERIES];
        let mut fall = [E::ZERO; QUERIES];
        for row in 0..self.scores.rows() {
            let scores = self.scores.row_mut(row);
            let max = slice::max::<V>(scores);
            let before = self.running.max[row];
            let max = if max > before { max } else { before };
            let pivot = finite_pivot(max);
            self.running.max[row] = max;
            fall[row] = before - pivot;
            sums[row] = exponentials::<V>(scores, pivot);
        }
        for (at, fall) in fall.chunks_mut(V::LANES).enumerate() {
            let sum = &mut self.running.sum[at * V::LANES..];
            let factor = math::exp_of_weight(V::load(fall));
            let added = V::load(&sums[at * V::LANES..]);
            V::load(sum).mul_add(factor, added).store(sum);
            factor.store(fall);
        }
        for (row, &factor) in fall[..self.sums.rows()].iter().enumerate() {
            if factor != E::ONE {
                slice::scale::<V>(factor, self.sums.row_mut(row));
            }
        }
    }
}

/// `x = exp(x - pivot)`, and the sum of that.
#[inline(always)]
fn exponentials<V: Vector>(x: &mut [V::Element], pivot: V::Element) -> V::Element {
    let pivot = V::splat(pivot);
    let mut sum = V::zero();
    for x in x.chunks_mut(V::LANES) {
        let weights = math::exp_of_weight(load_filled::<V>(x, -V::Element::INFINITY) - pivot);
        sum += weights;
        store_any(weights, x);
    }
    sum.reduce_sum()
}

/// Multiplies weights by their factors of dropout.
pub(super) struct ApplyDropout<'a, E> {
    pub dropper: DropoutMask<E>,
    pub tile: &'a Tile,
    /// `[queries, keys]`
    pub weights: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for ApplyDropout<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let mut factors = [E::ZERO; TILE];
        let factors = &mut factors[..self.weights.cols()];
        for row in 0..self.weights.rows() {
            let query = self.tile.queries.start + row;
            self.dropper
                .factors(self.tile.head, query, self.tile.keys.start, factors);
            let weights = self.weights.row_mut(row).chunks_mut(V::LANES);
            for (weights, factors) in weights.zip(factors.chunks(V::LANES)) {
                store_any(load_any::<V>(weights) * load_any(factors), weights);
            }
        }
    }
}

/// Divides the sums of values by the sums of weights, after the last key.
pub(super) struct Divide<'a, E> {
    pub running: &'a OnlineSoftmaxState<E>,
    /// `[queries, value_width]`
    pub sums: Matrix<'a, E>,
    /// `[queries, value_width]`
    pub out: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Divide<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.out.rows() {
            let sum = self.running.sum[row];
            let factor = if sum == E::ZERO {
                E::ZERO
            } else {
                E::ONE / sum
            };
            slice::map::<V>(self.out.row_mut(row), self.sums.row(row), Scale(factor));
        }
    }
}

/// Writes `lse`, the logarithm of the sum of all `exp(s)`, after the last key.
pub(super) struct WriteLse<'a, E> {
    pub running: &'a OnlineSoftmaxState<E>,
    /// `[queries]`
    pub lse: &'a mut [E],
}

impl<E: Real> Kernel for WriteLse<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let OnlineSoftmaxState { max, sum } = self.running;
        let rows = max.chunks(V::LANES).zip(sum.chunks(V::LANES));
        for (lse, (max, sum)) in self.lse.chunks_mut(V::LANES).zip(rows) {
            let max = V::load(max);
            let pivot = V::select(is_hidden(max), V::zero(), max);
            store_any(pivot + math::ln(V::load(sum)), lse);
        }
    }
}

/// `x * factor`
struct Scale<E>(E);

impl<E: Real> slice::Map<E> for Scale<E> {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        x * V::splat(self.0)
    }
}

/// Recomputes the weights, and computes the gradient of the scores.
pub(super) struct Differentiate<'a, E> {
    pub normalizer: Normalizer<'a, E>,
    pub dropper: Option<DropoutMask<E>>,
    pub tile: &'a Tile,
    /// The logarithms that [`WriteLse`] wrote, `[queries]`.
    pub lse: &'a [E],
    /// `δ`, `[queries]`
    pub delta: &'a [E],
    /// Scores, which become weights, `[queries, keys]`.
    pub scores: MatrixMut<'a, E>,
    /// The gradient of the weights, which becomes that of the scores, `[queries, keys]`.
    pub d: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Differentiate<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let mut factors = [E::ONE; TILE];
        let factors = &mut factors[..self.scores.cols()];
        for row in 0..self.scores.rows() {
            if let Some(dropper) = self.dropper {
                let query = self.tile.queries.start + row;
                dropper.factors(self.tile.head, query, self.tile.keys.start, factors);
            }
            let factors = self.dropper.map(|_| &*factors);
            let scores = self.scores.row_mut(row);
            let d = self.d.row_mut(row);
            let lse = V::splat(self.lse[row]);
            let delta = V::splat(self.delta[row]);
            match (self.normalizer, self.normalizer.sparse()) {
                (Normalizer::Identity, _) => {
                    differentiate(Identity, V::zero(), factors, scores, d);
                }
                (_, None) => differentiate(Exponential { lse }, delta, factors, scores, d),
                (_, Some(normalizer)) => {
                    let tau = lse;
                    differentiate(Threshold { normalizer, tau }, delta, factors, scores, d);
                }
            }
        }
    }
}

/// One row of [`Differentiate`].
#[inline(always)]
fn differentiate<V: Vector>(
    normalizer: impl Weights<V>,
    delta: V,
    factors: Option<&[V::Element]>,
    scores: &mut [V::Element],
    d: &mut [V::Element],
) {
    let vectors = scores.chunks_mut(V::LANES).zip(d.chunks_mut(V::LANES));
    for (at, (scores, d)) in vectors.enumerate() {
        let factor = match factors {
            Some(factors) => load_any(&factors[at * V::LANES..]),
            None => V::splat(V::Element::ONE),
        };
        let score = load_any(scores);
        let (weight, slope) = normalizer.weight_and_slope(score);
        let d_score = slope * (load_any::<V>(d) * factor - delta);
        store_any(weight * factor, scores);
        store_any(V::select(is_hidden(score), V::zero(), d_score), d);
    }
}

/// A normalizer on one row.
pub(super) trait Weights<V> {
    /// `p` and `g`. `p` is 0 where the score is masked.
    fn weight_and_slope(&self, score: V) -> (V, V);
}

pub(super) struct Exponential<V> {
    pub lse: V,
}

impl<V: Vector> Weights<V> for Exponential<V> {
    #[inline(always)]
    fn weight_and_slope(&self, score: V) -> (V, V) {
        // Rounding must not lift the largest score above the sum. NaN is preserved, except where the score is masked.
        let weight = math::exp_of_weight(V::zero().min(score - self.lse));
        let weight = V::select(is_hidden(score), V::zero(), weight);
        (weight, weight)
    }
}

pub(super) struct Identity;

impl<V: Vector> Weights<V> for Identity {
    #[inline(always)]
    fn weight_and_slope(&self, score: V) -> (V, V) {
        let none = is_hidden(score) | math::is_negligible(score);
        (V::select(none, V::zero(), score), V::splat(V::Element::ONE))
    }
}

pub(super) struct Threshold<V> {
    pub normalizer: Sparse,
    pub tau: V,
}

impl<V: Vector> Weights<V> for Threshold<V> {
    #[inline(always)]
    fn weight_and_slope(&self, score: V) -> (V, V) {
        self.normalizer.weight_and_slope(score, self.tau)
    }
}

/// `δ = Σ dout * out`, and what else is added, for every row and head.
pub(super) struct RowDots<'a, E> {
    /// `[rows, value_width]` for every head.
    pub out: Vec<Matrix<'a, E>>,
    /// As `out`.
    pub d_out: Vec<Matrix<'a, E>>,
    /// `[heads, rows]`
    pub shares: Option<Matrix<'a, E>>,
    /// `[rows, heads]`
    pub to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for RowDots<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.to.rows() {
            let heads = self.out.iter().zip(&self.d_out);
            for (h, (to, (out, d_out))) in self.to.row_mut(row).iter_mut().zip(heads).enumerate() {
                *to = slice::dot::<V>(out.row(row), d_out.row(row));
                if let Some(shares) = self.shares {
                    *to += shares.get(h, row);
                }
            }
        }
    }
}

/// The gradients of the sinks: `dsink = -Σ p δ` over the queries, where `p` is the weight of the sink.
pub(super) struct SinkGradients<'a, E> {
    /// `[heads]`
    pub sink: &'a [E],
    /// `[heads, queries]`
    pub lse: Matrix<'a, E>,
    /// `[queries, heads]`
    pub delta: Matrix<'a, E>,
    /// The part of `delta` without the output, `[heads, queries]`.
    pub shares: Option<Matrix<'a, E>>,
    /// `[heads]`
    pub to: &'a mut [E],
}

impl<E: Real> Kernel for SinkGradients<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let mut deltas = [E::ZERO; QUERIES];
        for (h, (&sink, to)) in self.sink.iter().zip(self.to).enumerate() {
            let mut sum = V::zero();
            for (block, lse) in self.lse.row(h).chunks(QUERIES).enumerate() {
                for (row, delta) in deltas[..lse.len()].iter_mut().enumerate() {
                    *delta = self.delta.get(block * QUERIES + row, h);
                }
                let vectors = lse
                    .chunks(V::LANES)
                    .zip(deltas[..lse.len()].chunks(V::LANES));
                for (at, (lse, delta)) in vectors.enumerate() {
                    let first = block * QUERIES + at * V::LANES;
                    let share = match self.shares {
                        Some(shares) => load_any(&shares.row(h)[first..][..lse.len()]),
                        None => V::zero(),
                    };
                    let lse = load_filled(lse, E::INFINITY);
                    let delta = load_any::<V>(delta);
                    let (weight, _) = Exponential { lse }.weight_and_slope(V::splat(sink));
                    // The output of a query that attends to no key is 0, for any gradient.
                    let alone = lse.eq(V::splat(sink)) & delta.ne(delta);
                    sum += weight * V::select(alone, share, delta);
                }
            }
            *to = -sum.reduce_sum();
        }
    }
}
