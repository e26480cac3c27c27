//! From scores to weights and back, over the rows of a tile.
//!
//! ```text
//! forward, softmax       m' = max(m, max s)      p = exp(s - m')      l' = l exp(m - m') + Σ p      out' = out exp(m - m') + p V
//! backward, softmax      p = exp(s - lse)        ds = p (dp - δ)      δ = Σ dout * out
//! backward, sigmoid      p = 1 / (1 + exp(-s))   ds = p (1 - p) dp
//! ```
//!
//! Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao, "FlashAttention-2" (2023), algorithms 1
//! and 2. Where `p` is 0 nothing was attended to, and `ds` is 0, whatever `dp` is.

use super::Normalizer;
use super::dropout::Dropper;
use super::plan::{QUERIES, TILE, Tile};
use crate::simd::slice::{load_any, load_filled, store_any};
use crate::simd::{Kernel, Matrix, MatrixMut, Real, Vector, math, slice};

/// What is known of the rows of a block of queries after some of the keys.
#[derive(Clone, Debug)]
pub(super) struct Running<E> {
    max: [E; QUERIES],
    sum: [E; QUERIES],
}

impl<E: Real> Running<E> {
    /// Before the first key: of [`Normalizer::Softmax1`], that is one of score and value 0.
    pub(super) fn new(normalizer: Normalizer) -> Self {
        let (max, sum) = match normalizer {
            Normalizer::Softmax => (-E::INFINITY, E::ZERO),
            // The logarithm of a sum that is not used is 0.
            Normalizer::Softmax1 | Normalizer::Sigmoid => (E::ZERO, E::ONE),
        };
        Self {
            max: [max; QUERIES],
            sum: [sum; QUERIES],
        }
    }
}

/// Scores to weights, in place; of a softmax, they are not yet divided by the sum.
pub(super) struct Weigh<'a, E> {
    pub normalizer: Normalizer,
    pub dropper: Option<Dropper<E>>,
    pub tile: &'a Tile,
    /// `[queries, keys]`
    pub scores: MatrixMut<'a, E>,
    pub running: &'a mut Running<E>,
    /// What earlier tiles gave, `[queries, value_width]`: rescaled to the new maximum.
    pub sums: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Weigh<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        match self.normalizer {
            Normalizer::Sigmoid => self.logistic::<V>(),
            Normalizer::Softmax | Normalizer::Softmax1 => self.exponential::<V>(),
        }
        if let Some(dropper) = self.dropper {
            drop_some::<V>(dropper, self.tile, &mut self.scores);
        }
    }
}

impl<E: Real> Weigh<'_, E> {
    #[inline(always)]
    fn logistic<V: Vector<Element = E>>(&mut self) {
        for row in 0..self.scores.rows() {
            for scores in self.scores.row_mut(row).chunks_mut(V::LANES) {
                store_any(math::sigmoid(load_any::<V>(scores)), scores);
            }
        }
    }

    #[inline(always)]
    fn exponential<V: Vector<Element = E>>(&mut self) {
        let mut sums = [E::ZERO; QUERIES];
        let mut fall = [E::ZERO; QUERIES];
        for row in 0..self.scores.rows() {
            let scores = self.scores.row_mut(row);
            let (max, before) = (slice::max::<V>(scores), self.running.max[row]);
            let max = if max > before { max } else { before };
            let pivot = finite_pivot(max);
            self.running.max[row] = max;
            fall[row] = before - pivot;
            sums[row] = exponentials::<V>(scores, pivot);
        }
        for (at, fall) in fall.chunks_mut(V::LANES).enumerate() {
            let sum = &mut self.running.sum[at * V::LANES..];
            let factor = math::exp_of_nonpositive(V::load(fall));
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

/// What is subtracted from scores before they are exponentiated: their maximum, unless there are none.
#[inline(always)]
fn finite_pivot<E: Real>(max: E) -> E {
    if max == -E::INFINITY { E::ZERO } else { max }
}

/// `x = exp(x - pivot)`, and the sum of that.
#[inline(always)]
fn exponentials<V: Vector>(x: &mut [V::Element], pivot: V::Element) -> V::Element {
    let pivot = V::splat(pivot);
    let mut sum = V::zero();
    for x in x.chunks_mut(V::LANES) {
        let weights = math::exp_of_nonpositive(load_filled::<V>(x, -V::Element::INFINITY) - pivot);
        sum += weights;
        store_any(weights, x);
    }
    sum.reduce_sum()
}

#[inline(always)]
fn drop_some<V: Vector>(
    dropper: Dropper<V::Element>,
    tile: &Tile,
    weights: &mut MatrixMut<'_, V::Element>,
) {
    let mut factors = [V::Element::ZERO; TILE];
    let factors = &mut factors[..weights.cols()];
    for row in 0..weights.rows() {
        dropper.factors(
            tile.head,
            tile.queries.start + row,
            tile.keys.start,
            factors,
        );
        let weights = weights.row_mut(row).chunks_mut(V::LANES);
        for (weights, factors) in weights.zip(factors.chunks(V::LANES)) {
            store_any(load_any::<V>(weights) * load_any(factors), weights);
        }
    }
}

/// After the last key: the sums of values become means, and `lse` is the logarithm of the sum of all `exp(s)`.
pub(super) struct Finish<'a, E> {
    pub running: &'a Running<E>,
    /// `[queries, value_width]`
    pub sums: Matrix<'a, E>,
    /// `[queries, value_width]`
    pub out: MatrixMut<'a, E>,
    /// `[queries]`
    pub lse: &'a mut [E],
}

impl<E: Real> Kernel for Finish<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Running { max, sum } = self.running;
        for (row, lse) in self.lse.iter_mut().enumerate() {
            let factor = if sum[row] == E::ZERO {
                E::ZERO
            } else {
                E::ONE / sum[row]
            };
            slice::map::<V>(self.out.row_mut(row), self.sums.row(row), Times(factor));
            *lse = sum[row];
        }
        for (lse, max) in self.lse.chunks_mut(V::LANES).zip(max.chunks(V::LANES)) {
            let max = V::load(max);
            let pivot = V::select(max.eq(V::splat(-E::INFINITY)), V::zero(), max);
            store_any(pivot + math::ln(load_any::<V>(lse)), lse);
        }
    }
}

/// `x factor`
struct Times<E>(E);

impl<E: Real> slice::Map<E> for Times<E> {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        x * V::splat(self.0)
    }
}

/// The weights again, and the gradient of the scores.
pub(super) struct Differentiate<'a, E> {
    pub normalizer: Normalizer,
    pub dropper: Option<Dropper<E>>,
    pub tile: &'a Tile,
    /// What [`Finish`] wrote, `[queries]`.
    pub lse: &'a [E],
    /// `Σ dout * out`, `[queries]`
    pub delta: &'a [E],
    /// From scores to weights, `[queries, keys]`.
    pub scores: MatrixMut<'a, E>,
    /// From the gradient of the weights to that of the scores, `[queries, keys]`.
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
            let (scores, d) = (self.scores.row_mut(row), self.d.row_mut(row));
            match self.normalizer {
                Normalizer::Sigmoid => differentiate::<V>(Logistic, factors, scores, d),
                Normalizer::Softmax | Normalizer::Softmax1 => {
                    let softmax = Exponential {
                        lse: V::splat(self.lse[row]),
                        delta: V::splat(self.delta[row]),
                    };
                    differentiate::<V>(softmax, factors, scores, d);
                }
            }
        }
    }
}

/// One row of [`Differentiate`].
#[inline(always)]
fn differentiate<V: Vector>(
    normalizer: impl Derivative<V>,
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
        let weight = normalizer.weight(load_any(scores));
        let d_score = normalizer.d_score(weight, load_any::<V>(d) * factor);
        let attended = weight.ne(V::zero());
        store_any(weight * factor, scores);
        store_any(V::select(attended, d_score, V::zero()), d);
    }
}

/// A normalizer, seen from one row.
trait Derivative<V> {
    fn weight(&self, score: V) -> V;

    fn d_score(&self, weight: V, d_weight: V) -> V;
}

struct Exponential<V> {
    lse: V,
    delta: V,
}

impl<V: Vector> Derivative<V> for Exponential<V> {
    #[inline(always)]
    fn weight(&self, score: V) -> V {
        // Rounding must not lift the largest score above the sum; NaN passes, but where nothing is attended to.
        let weight = math::exp_of_nonpositive(V::zero().min(score - self.lse));
        let hidden = score.eq(V::splat(-V::Element::INFINITY));
        V::select(hidden, V::zero(), weight)
    }

    #[inline(always)]
    fn d_score(&self, weight: V, d_weight: V) -> V {
        weight * (d_weight - self.delta)
    }
}

struct Logistic;

impl<V: Vector> Derivative<V> for Logistic {
    #[inline(always)]
    fn weight(&self, score: V) -> V {
        math::sigmoid(score)
    }

    #[inline(always)]
    fn d_score(&self, weight: V, d_weight: V) -> V {
        weight * (V::splat(V::Element::ONE) - weight) * d_weight
    }
}

/// `δ = Σ dout * out`, for every row and head.
pub(super) struct Deltas<'a, E> {
    /// `[rows, heads * value_width]`
    pub out: Matrix<'a, E>,
    /// `[rows, heads * value_width]`
    pub d_out: Matrix<'a, E>,
    /// `[rows, heads]`
    pub to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Deltas<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let width = self.out.cols() / self.to.cols();
        for row in 0..self.to.rows() {
            let (out, d_out) = (self.out.row(row), self.d_out.row(row));
            for (h, to) in self.to.row_mut(row).iter_mut().enumerate() {
                let of_head = h * width..(h + 1) * width;
                *to = slice::dot::<V>(&out[of_head.clone()], &d_out[of_head]);
            }
        }
    }
}
