//! Products of a tile with masked coefficients, in which a masked row has no effect even if it is NaN.
//!
//! A masked coefficient is exactly 0 and adds nothing to a sum, unless its factor is NaN or infinite, as the keys of padding may
//! be. In that case the non-finite rows count as zeros in the product, and are added afterwards for the queries that attend to
//! them. All other elements keep their bits.

use super::TileMask;
use super::bands::Side;
use super::plan::Tile;
use crate::kernel::Pooled;
use crate::kernel::panel::Panel;
use crate::simd::slice::load_any;
use crate::simd::{
    Kernel, Mask, Matrix, MatrixMut, Real, Threads, Vector, WriteMode, call, product, run,
};

/// Coefficients of the pairs of a tile, `[queries, keys]`: weights, or the gradient of the scores.
pub(super) struct MaskedWeights<'a, E> {
    pub mask: &'a dyn TileMask<E>,
    pub tile: &'a Tile,
    pub matrix: Matrix<'a, E>,
}

impl<E: Pooled> MaskedWeights<'_, E> {
    /// `to += scale * C rows`: one row per query from one row per key.
    pub(super) fn add_matmul(&self, scale: E, rows: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        let candidates = self.tile.partial_columns().flatten();
        self.add(Side::Queries, scale, rows, candidates, to);
    }

    /// `to += scale * Cᵀ rows`: one row per key from one row per query.
    pub(super) fn add_transposed_matmul(
        &self,
        scale: E,
        rows: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) {
        let candidates = match self.tile.is_partial() {
            true => 0..rows.rows(),
            false => 0..0,
        };
        self.add(Side::Keys, scale, rows, candidates, to);
    }

    fn add(
        &self,
        side: Side,
        scale: E,
        rows: Matrix<'_, E>,
        candidates: impl Iterator<Item = usize>,
        mut to: MatrixMut<'_, E>,
    ) {
        let orient = |matrix| match side {
            Side::Queries => matrix,
            Side::Keys => Matrix::transposed(matrix),
        };
        let factors = orient(self.matrix);
        let add = |to: MatrixMut<'_, E>, rows: Matrix<'_, E>| {
            self.tile.bands().for_each_rows(side, to, |to, of, depths| {
                let factors = factors.part(of, depths.clone());
                let rows = rows.some_rows(depths);
                product(to, WriteMode::Add, scale, factors, rows, Threads::One);
            });
        };
        let non_finite = run(NonFinite { rows, candidates });
        // A product with a single contiguous column may add in another order: always multiply the copy.
        if non_finite.is_empty() && rows.cols() > 1 {
            return add(to, rows);
        }
        let finite = zeroed(rows, &non_finite);
        add(to.reborrow(), finite.read());
        let hidden = hidden(self.mask, self.tile);
        let hidden = orient(hidden.read());
        for row in non_finite {
            for i in 0..to.rows() {
                if hidden.get(i, row) == E::ZERO {
                    call::axpy(scale * factors.get(i, row), rows.row(row), to.row_mut(i));
                }
            }
        }
    }
}

/// 0 where a query attends to a key, -∞ where it does not: `[queries, keys]`.
pub(super) fn hidden<E: Pooled>(mask: &dyn TileMask<E>, tile: &Tile) -> Panel<E> {
    let mut hidden = Panel::new(tile.queries.len(), tile.keys.len());
    hidden.write().fill(E::ZERO);
    mask.hide(tile.origin(), &mut hidden.write());
    hidden
}

/// A copy with zeros in these rows.
fn zeroed<E: Pooled>(matrix: Matrix<'_, E>, rows: &[usize]) -> Panel<E> {
    let mut copy = Panel::new(matrix.rows(), matrix.cols());
    copy.write().copy_from(matrix);
    for &row in rows {
        copy.write().row_mut(row).fill(E::ZERO);
    }
    copy
}

/// Finds the rows with NaN or an infinity among the candidates.
struct NonFinite<'a, E, I> {
    rows: Matrix<'a, E>,
    candidates: I,
}

impl<E: Real, I: Iterator<Item = usize>> Kernel for NonFinite<'_, E, I> {
    type Element = E;
    type Output = Vec<usize>;

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> Vec<usize> {
        let mut found = Vec::new();
        for row in self.candidates {
            // 0 times x is 0, unless x is NaN or infinite.
            let mut sum = V::zero();
            for x in self.rows.row(row).chunks(V::LANES) {
                sum += load_any::<V>(x) * V::zero();
            }
            if sum.ne(V::zero()).any() {
                found.push(row);
            }
        }
        found
    }
}
