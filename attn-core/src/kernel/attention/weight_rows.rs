//! Weights as a result, and sums over them.
//!
//! A tile has `exp(s - m)`, where `m` is the maximum of a row so far. It is written as it is, and multiplied by
//! `exp(m - max) / sum` after the last tile.

use std::ops::Range;

use super::plan::QUERIES;
use super::softmax_state::{OnlineSoftmaxState, finite_pivot};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Matrix, MatrixMut, Real, Vector, math, run};

/// The weights of a block of queries, which are written tile by tile.
pub(super) struct WeightRows<'a, E> {
    /// `[queries, key]`
    weights: MatrixMut<'a, E>,
    /// The keys of every tile, and the maximum of each row after it.
    tiles: Vec<(Range<usize>, [E; QUERIES])>,
}

impl<'a, E: Real> WeightRows<'a, E> {
    /// `weights`: `[queries, key]`, all of which is overwritten.
    pub(super) fn new(weights: MatrixMut<'a, E>) -> Self {
        let tiles = Vec::new();
        Self { weights, tiles }
    }

    /// The key after the last tile.
    fn end(&self) -> usize {
        self.tiles.last().map_or(0, |(keys, _)| keys.end)
    }

    /// Writes the weights of these keys, which follow those of the tile before. No query attends to a key between the two.
    pub(super) fn write(
        &mut self,
        keys: Range<usize>,
        tile: Matrix<'_, E>,
        running: &OnlineSoftmaxState<E>,
    ) {
        let gap = self.end()..keys.start;
        for row in 0..tile.rows() {
            let weights = self.weights.row_mut(row);
            weights[gap.clone()].fill(E::ZERO);
            weights[keys.clone()].copy_from_slice(tile.row(row));
        }
        self.tiles.push((keys, running.max));
    }

    /// Divides the weights by their sums, after the last tile.
    pub(super) fn finish(mut self, running: &OnlineSoftmaxState<E>) {
        let end = self.end();
        for row in 0..self.weights.rows() {
            self.weights.row_mut(row)[end..].fill(E::ZERO);
        }
        run(Normalize {
            tiles: &self.tiles,
            running,
            weights: self.weights,
        });
    }
}

/// Divides weights by their sums.
pub(super) struct Normalize<'a, E> {
    /// The keys of every tile, and the maximum of each row after it.
    pub tiles: &'a [(Range<usize>, [E; QUERIES])],
    pub running: &'a OnlineSoftmaxState<E>,
    /// `[queries, key]`
    pub weights: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Normalize<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let OnlineSoftmaxState { max, sum } = self.running;
        for (keys, before) in self.tiles {
            for row in 0..self.weights.rows() {
                let fall = V::splat(before[row] - finite_pivot(max[row]));
                let factor = math::exp_of_weight(fall) / V::splat(sum[row]);
                let weights = &mut self.weights.row_mut(row)[keys.clone()];
                for weights in weights.chunks_mut(V::LANES) {
                    let weight = load_any::<V>(weights);
                    let share = weight * factor;
                    // A masked weight is 0, also beside one of NaN, and where there is no sum.
                    let none = weight.eq(V::zero()) | math::is_negligible(share);
                    store_any(V::select(none, V::zero(), share), weights);
                }
            }
        }
    }
}

/// `to += Σ factors * d`, for every row. A factor of 0 adds nothing: the pair may be masked, and its `d` NaN.
pub(super) struct MaskedDots<'a, E> {
    /// `[queries, keys]`
    pub factors: Matrix<'a, E>,
    /// `[queries, keys]`
    pub d: Matrix<'a, E>,
    /// `[queries]`
    pub to: &'a mut [E],
}

impl<E: Real> Kernel for MaskedDots<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        for (row, to) in (0..self.factors.rows()).zip(self.to) {
            let mut sum = V::zero();
            let factors = self.factors.row(row).chunks(V::LANES);
            for (factors, d) in factors.zip(self.d.row(row).chunks(V::LANES)) {
                let factor = load_any::<V>(factors);
                let none = factor.eq(V::zero());
                sum += V::select(none, V::zero(), factor * load_any(d));
            }
            *to += sum.reduce_sum();
        }
    }
}
