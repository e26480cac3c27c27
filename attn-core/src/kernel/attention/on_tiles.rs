//! Masks and scores, a tile at a time: what the kernels call.
//!
//! A virtual call per tile costs nothing, and so the kernels are compiled once, not again for every layer.

use std::ops::Range;

use super::{Coverage, Mask, Score};
use crate::simd::{
    Kernel, Matrix, MatrixMut, Real, Vector, run,
    slice::{load_any, store_any},
};

/// Where the first element of a tile stands: row `i` and column `j` are query `q + i` and key `k + j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sequence.
    pub b: usize,
    /// The query head.
    pub h: usize,
    /// The query of the first row.
    pub q: usize,
    /// The key of the first column.
    pub k: usize,
}

/// A [`Mask`] on tiles.
pub trait TileMask<E>: Sync {
    /// [`Mask::coverage`]
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage;

    /// Writes -∞ over the scores of keys that a query does not attend to.
    fn hide(&self, at: Place, scores: &mut MatrixMut<'_, E>);
}

impl<E: Real, M: Mask> TileMask<E> for M {
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        Mask::coverage(self, b, h, q, k)
    }

    fn hide(&self, at: Place, scores: &mut MatrixMut<'_, E>) {
        run(Hide {
            mask: self,
            at,
            scores,
        });
    }
}

struct Hide<'a, 'm, E, M> {
    mask: &'a M,
    at: Place,
    scores: &'a mut MatrixMut<'m, E>,
}

impl<E: Real, M: Mask> Kernel for Hide<'_, '_, E, M> {
    type Element = E;
    type Output = ();

    // Plain Rust: comparisons of indices, which the compiler vectorises by itself.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Place { b, h, q, k } = self.at;
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

/// A [`Score`] on tiles. A row of `bias` belongs to the row of scores, if the score reads a bias at all.
pub trait TileScore<E>: Sync {
    /// The values of the scores, in place.
    fn apply(&self, bias: Bias<'_, E>, scores: &mut MatrixMut<'_, E>);

    /// From the gradient of the values to that of the scores, in place; where the former is 0, so is the latter.
    /// `d_bias` is the row of the head in the gradient of the bias, to which is added.
    fn backward(
        &self,
        bias: Bias<'_, E>,
        scores: Matrix<'_, E>,
        d: &mut MatrixMut<'_, E>,
        d_bias: Option<&mut [E]>,
    );
}

/// The bias of a tile: that of its row `i` and column `j` is `row[start + j - i]`. Nothing stands for zeros.
#[derive(Clone, Copy, Debug)]
pub struct Bias<'a, E> {
    /// The row of the head, by distance.
    pub row: Option<&'a [E]>,
    /// Where the first row of the tile begins: `k + (query - 1) - q`.
    pub start: usize,
}

impl<'a, E> Bias<'a, E> {
    /// The numbers of a row of the tile.
    #[inline(always)]
    fn row(&self, row: usize, cols: usize) -> &'a [E] {
        match self.row {
            Some(bias) => &bias[self.start - row..][..cols],
            None => &[],
        }
    }
}

impl<E: Real, F: Score<E>> TileScore<E> for F {
    fn apply(&self, bias: Bias<'_, E>, scores: &mut MatrixMut<'_, E>) {
        run(Apply {
            score: self,
            bias,
            scores,
        });
    }

    fn backward(
        &self,
        bias: Bias<'_, E>,
        scores: Matrix<'_, E>,
        d: &mut MatrixMut<'_, E>,
        d_bias: Option<&mut [E]>,
    ) {
        run(Backward {
            score: self,
            bias,
            scores,
            d,
            d_bias,
        });
    }
}

struct Apply<'a, 'm, E, F> {
    score: &'a F,
    bias: Bias<'a, E>,
    scores: &'a mut MatrixMut<'m, E>,
}

impl<E: Real, F: Score<E>> Kernel for Apply<'_, '_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let cols = self.scores.cols();
        for row in 0..self.scores.rows() {
            let bias = self.bias.row(row, cols);
            for (lane, scores) in self.scores.row_mut(row).chunks_mut(V::LANES).enumerate() {
                let value = self
                    .score
                    .value(load_any::<V>(scores), load_at(bias, lane * V::LANES));
                store_any(value, scores);
            }
        }
    }
}

struct Backward<'a, 'm, E, F> {
    score: &'a F,
    bias: Bias<'a, E>,
    scores: Matrix<'a, E>,
    d: &'a mut MatrixMut<'m, E>,
    d_bias: Option<&'a mut [E]>,
}

impl<E: Real, F: Score<E>> Kernel for Backward<'_, '_, E, F> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let (rows, cols) = (self.d.rows(), self.d.cols());
        for row in 0..rows {
            let bias = self.bias.row(row, cols);
            let scores = self.scores.row(row).chunks(V::LANES);
            for (lane, (d, scores)) in self
                .d
                .row_mut(row)
                .chunks_mut(V::LANES)
                .zip(scores)
                .enumerate()
            {
                let at = lane * V::LANES;
                let (score, bias) = (load_any::<V>(scores), load_at(bias, at));
                let d_value = load_any::<V>(d);
                let none = d_value.eq(V::zero());
                if let Some(d_bias) = &mut self.d_bias {
                    let start = self.bias.start - row + at;
                    let d_bias = &mut d_bias[start..][..d.len()];
                    let added = V::select(
                        none,
                        V::zero(),
                        d_value * self.score.bias_derivative(score, bias),
                    );
                    store_any(load_any::<V>(d_bias) + added, d_bias);
                }
                let d_score = d_value * self.score.derivative(score, bias);
                store_any(V::select(none, V::zero(), d_score), d);
            }
        }
    }
}

/// The vector at `at`, or zeros where there is no bias.
#[inline(always)]
fn load_at<V: Vector>(bias: &[V::Element], at: usize) -> V {
    if bias.is_empty() {
        V::zero()
    } else {
        load_any(&bias[at..])
    }
}
