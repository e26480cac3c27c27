//! The scores of a tile.

use super::load::AdditiveScores;
use super::plan::Tile;
use super::{Attention, Similarity};
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, product, run};

impl<E: Pooled> Attention<'_, E> {
    /// The similarities of queries and keys.
    pub(super) fn similarities(
        &self,
        tile: &Tile,
        q: Matrix<'_, E>,
        kt: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) {
        match self.similarity {
            Similarity::Dot { scale } => {
                tile.bands().for_each_part(to, |to, queries, keys| {
                    let (q, kt) = (q.some_rows(queries), kt.some_cols(keys));
                    product(to, WriteMode::Overwrite, scale, q, kt, Threads::One);
                });
            }
            Similarity::Additive { w } => run(AdditiveScores {
                q,
                kt,
                w: w.row(tile.head.h),
                to,
            }),
        }
    }

    /// Modifies scores in place, and sets masked ones to -∞.
    pub(super) fn score(&self, tile: &Tile, scores: &mut MatrixMut<'_, E>) {
        if let Some(score) = self.score {
            score.apply(tile.origin(), scores);
        }
        self.hide(tile, scores);
    }

    /// Sets masked scores to -∞.
    pub(super) fn hide(&self, tile: &Tile, scores: &mut MatrixMut<'_, E>) {
        for columns in tile.partial_columns() {
            let mut place = tile.origin();
            place.k += columns.start;
            let (_, part) = scores.reborrow().split_cols(columns.start);
            let (mut part, _) = part.split_cols(columns.len());
            self.mask.hide(place, &mut part);
        }
    }
}
