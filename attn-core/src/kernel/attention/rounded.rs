//! The products of attention over numbers that are rounded to bf16.
//!
//! ```text
//! forward     s = bf16(scale q) bf16(k)ᵀ      out += bf16(p) bf16(v)
//! backward    s = as forward                  dp = bf16(dout) bf16(v)ᵀ                  dv += bf16(p)ᵀ bf16(dout)
//!                                             dq = scale Σ bf16(ds) bf16(k)             dk += bf16(ds)ᵀ bf16(scale q)
//! ```
//!
//! Queries, keys and values are rounded after their transforms, weights after dropout. The weights of the forward pass are `exp(s - max)`, with the
//! maximum of a row up to the last key of its tile; those of the backward pass are divided by their sum. All sums, scores and the softmax are in the
//! type of the model. So are additive similarities, which are no products, and all products where heads talk to each other.

use super::bands::Side;
use super::head_major::HeadMajor;
use super::load::LoadRows;
use super::masked_weights::hidden;
use super::paged::Rows;
use super::plan::{TILE, Tile, chunks};
use super::{Attention, HeadTransform, Similarity, TileMask};
use crate::kernel::panel::Panel;
use crate::kernel::{Buffer, Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{
    Initial, Pair, PairPanels, Panels, call, halves_mut, pair_rounded_columns, pair_rounded_rows,
    panel_columns, run, vector_columns,
};

/// Pairs in pooled memory.
#[derive(Debug)]
pub(super) struct PairPanel(Panel<f32>);

impl PairPanel {
    /// A matrix with undefined contents.
    fn new(rows: usize, cols: usize) -> Self {
        Self(Panel::new(rows, cols))
    }

    /// Pairs of two neighbouring rows, as the right side of a product has them: `[pairs, columns]`. Behind the last column there are zeros.
    pub(super) fn of_rows<E: Pooled>(x: Matrix<'_, E>) -> Self {
        let mut pairs = Self::new(x.rows().div_ceil(2), whole(x.cols()));
        E::pair_rows(x, pairs.write());
        pairs
    }

    /// Pairs of two neighbouring columns, as the left side of a product has them: `[rows, pairs]`.
    pub(super) fn of_columns<E: Pooled>(x: Matrix<'_, E>) -> Self {
        let mut pairs = Self::new(x.rows(), x.cols().div_ceil(2));
        E::pair_columns(x, pairs.write());
        pairs
    }

    /// Pairs of two neighbouring columns, transposed, as the right side of a product with `xᵀ` has them: `[pairs, rows]`. Behind the last row
    /// there are zeros.
    pub(super) fn of_transpose<E: Pooled>(x: Matrix<'_, E>) -> Self {
        let mut pairs = Self::new(x.cols().div_ceil(2), whole(x.rows()));
        Self::of_columns(x).transpose(pairs.0.write());
        pairs
    }

    /// [`of_columns`](Self::of_columns) of rows in bf16.
    fn of_rounded_columns(x: Matrix<'_, u16>) -> Self {
        let mut pairs = Self::new(x.rows(), x.cols().div_ceil(2));
        pair_rounded_columns(x, pairs.write());
        pairs
    }

    /// Transposes pairs to the memory of others: a pair is transposed as a number is. Behind the last column there are zeros.
    fn transpose(&self, to: MatrixMut<'_, f32>) {
        let pairs = self.0.read();
        let (to, mut behind) = to.split_cols(pairs.rows());
        transpose(pairs, to);
        behind.fill(0.0);
    }

    fn write(&mut self) -> MatrixMut<'_, Pair> {
        Pair::in_matrix_of(self.0.write())
    }

    pub(super) fn read(&self) -> Matrix<'_, Pair> {
        Pair::of_matrix(self.0.read())
    }
}

/// The number of columns, with those that fill the last vector.
pub(super) fn whole(cols: usize) -> usize {
    cols.next_multiple_of(vector_columns::<f32>())
}

/// `to = initial + rows columns`. The columns are those of whole vectors.
fn multiply<E: Pooled>(
    to: MatrixMut<'_, E>,
    initial: Initial<'_, E>,
    rows: Matrix<'_, Pair>,
    columns: Matrix<'_, Pair>,
) {
    match Panels::in_place_with_columns(columns, panel_columns::<E>()) {
        Some(panels) => {
            let columns = PairPanels::new(panels, to.cols());
            E::multiply_pairs(&mut [to], initial, rows, &columns, None);
        }
        None => unreachable!("columns of whole vectors"),
    }
}

/// The products of rows of queries with the columns of a tile, of which the first one is `first`.
///
/// `to`: `[queries, keys]`; `rows`: `[queries, pairs of the width]`; `columns`: `[pairs of the width, key]`.
pub(super) fn multiply_tile<E: Pooled>(
    tile: &Tile,
    to: MatrixMut<'_, E>,
    rows: Matrix<'_, Pair>,
    columns: &PairPanel,
    first: usize,
) {
    tile.bands().for_each_part(to, |to, queries, keys| {
        let start = first + keys.start;
        let columns = columns.read().some_cols(start..start + whole(keys.len()));
        multiply(to, Initial::Zero, rows.some_rows(queries), columns);
    });
}

impl<E: Pooled> Attention<'_, E> {
    /// The scale of the scores, if the operands of products are rounded.
    pub(super) fn rounded_scale(&self) -> Option<E> {
        match self.similarity {
            Similarity::Dot { scale } if self.dtype == Dtype::Bf16 && !self.talking.is_any() => {
                Some(scale)
            }
            _ => None,
        }
    }
}

/// The transformed keys and values of a head, for the forward pass.
pub(super) struct RoundedKeys {
    /// The keys: `[pairs of the width, key]`
    columns: PairPanel,
    /// The values: `[pairs of keys, value_width]`
    values: PairPanel,
}

impl RoundedKeys {
    pub(super) fn load<E: Pooled>(
        attention: &Attention<'_, E>,
        kv: usize,
        k: Rows<'_, E>,
        v: Rows<'_, E>,
    ) -> Self {
        let mut columns = PairPanel::new(k.cols().div_ceil(2), whole(k.rows()));
        let transform = &attention.key.of_head(kv, k.cols());
        let tasks = chunks(0..k.rows(), TILE).zip(columns.0.write().col_chunks(TILE));
        attention.for_each(1, tasks, |(keys, to)| {
            let first = keys.start;
            let pairs = match k.rounded(&keys).filter(|_| transform.is_nothing()) {
                Some(x) => PairPanel::of_rounded_columns(x),
                None => k.with(keys, |x| {
                    PairPanel::of_columns(Loaded::new(transform, x, first).rows())
                }),
            };
            pairs.transpose(to);
        });
        let mut values = PairPanel::new(v.rows().div_ceil(2), whole(v.cols()));
        let transform = &attention.value.of_head(kv, v.cols());
        let tasks = chunks(0..v.rows(), TILE).zip(values.write().row_chunks(TILE / 2));
        attention.for_each(1, tasks, |(keys, to)| {
            let first = keys.start;
            match v.rounded(&keys).filter(|_| transform.is_nothing()) {
                Some(x) => pair_rounded_rows(x, to),
                None => v.with(keys, |x| {
                    E::pair_rows(Loaded::new(transform, x, first).rows(), to);
                }),
            }
        });
        Self { columns, values }
    }

    pub(super) fn columns(&self) -> &PairPanel {
        &self.columns
    }

    pub(super) fn values(&self) -> Matrix<'_, Pair> {
        self.values.read()
    }
}

/// Rows after their transform: where they stand, if it changes nothing.
pub(super) enum Loaded<'a, E: Pooled> {
    Given(Matrix<'a, E>),
    Transformed(Panel<E>),
}

impl<'a, E: Pooled> Loaded<'a, E> {
    pub(super) fn new(transform: &HeadTransform<'_, E>, x: Matrix<'a, E>, first: usize) -> Self {
        if transform.is_nothing() {
            return Self::Given(x);
        }
        Self::copy(transform, x, first)
    }

    /// The same, copied if there are gaps between the rows: they would share few sets of a cache.
    pub(super) fn dense(transform: &HeadTransform<'_, E>, x: Matrix<'a, E>, first: usize) -> Self {
        match transform.is_nothing() && x.is_contiguous() {
            true => Self::Given(x),
            false => Self::copy(transform, x, first),
        }
    }

    fn copy(transform: &HeadTransform<'_, E>, x: Matrix<'_, E>, first: usize) -> Self {
        let mut rows = Panel::new(x.rows(), x.cols());
        run(LoadRows {
            transform,
            x,
            first,
            to: rows.write(),
        });
        Self::Transformed(rows)
    }

    pub(super) fn rows(&self) -> Matrix<'_, E> {
        match self {
            Self::Given(rows) => *rows,
            Self::Transformed(rows) => rows.read(),
        }
    }
}

/// The transformed queries of a block, which are multiplied by the scale first: `[queries, pairs of the width]`.
pub(super) fn round_queries<E: Pooled>(scale: E, mut q: Panel<E>) -> PairPanel {
    scale_rows(scale, q.write());
    PairPanel::of_columns(q.read())
}

/// The same rows, rounded, as numbers of the model.
pub(super) fn rounded_rows<E: Pooled>(x: Matrix<'_, E>) -> Panel<E> {
    let [rows, cols] = [x.rows(), x.cols()];
    let mut memory = Buffer::<E>::uninit((rows * cols).div_ceil(2));
    let halves = &mut halves_mut(&mut memory)[..rows * cols];
    E::round_rows(x, MatrixMut::new(halves, rows, cols));
    let mut wide = Panel::new(rows, cols);
    E::widen_rows(Matrix::new(halves, rows, cols), wide.write());
    wide
}

pub(super) fn scale_rows<E: Pooled>(scale: E, mut x: MatrixMut<'_, E>) {
    if scale != E::ONE {
        (0..x.rows()).for_each(|row| call::scale(scale, x.row_mut(row)));
    }
}

/// Vectors of all heads, as both sides of products have them.
pub(super) struct RoundedHeads {
    /// `[heads, rows, pairs of the width]`
    rows: HeadMajor<f32>,
    /// `[heads, pairs of rows, width]`
    depths: HeadMajor<f32>,
}

/// Some vectors of a head, as both sides of products have them.
#[derive(Clone, Copy)]
pub(super) struct RoundedVectors<'a> {
    /// `[rows, pairs of the width]`
    pub rows: Matrix<'a, Pair>,
    /// `[pairs of rows, width]`
    pub depths: Matrix<'a, Pair>,
}

impl RoundedHeads {
    pub(super) fn uninit(heads: usize, rows: usize, width: usize) -> Self {
        Self {
            rows: HeadMajor::uninit(heads, rows, width.div_ceil(2)),
            depths: HeadMajor::uninit(heads, rows.div_ceil(2), whole(width)),
        }
    }

    /// Chunks of so many rows, an even number, of every head.
    pub(super) fn row_chunks(
        &mut self,
        rows: usize,
    ) -> impl Iterator<Item = Vec<RoundedVectorsMut<'_>>> {
        let chunks = self
            .rows
            .row_chunks(rows)
            .zip(self.depths.row_chunks(rows / 2));
        chunks.map(|(rows, depths)| {
            let heads = rows.into_iter().zip(depths);
            heads
                .map(|(rows, depths)| RoundedVectorsMut {
                    rows: Pair::in_matrix_of(rows),
                    depths: Pair::in_matrix_of(depths),
                })
                .collect()
        })
    }

    /// Rows of a head, of which the first has an even number.
    pub(super) fn of(&self, h: usize, rows: std::ops::Range<usize>) -> RoundedVectors<'_> {
        let depths = rows.start / 2..rows.end.div_ceil(2);
        RoundedVectors {
            rows: Pair::of_matrix(self.rows.of(h).some_rows(rows)),
            depths: Pair::of_matrix(self.depths.of(h).some_rows(depths)),
        }
    }
}

/// [`RoundedVectors`], to write.
pub(super) struct RoundedVectorsMut<'a> {
    rows: MatrixMut<'a, Pair>,
    depths: MatrixMut<'a, Pair>,
}

impl RoundedVectorsMut<'_> {
    /// Rounds rows.
    pub(super) fn write<E: Pooled>(self, x: Matrix<'_, E>) {
        E::pair_columns(x, self.rows);
        E::pair_rows(x, self.depths);
    }

    /// Rounds rows, which are multiplied by the scale first.
    pub(super) fn write_scaled<E: Pooled>(self, scale: E, mut x: MatrixMut<'_, E>) {
        scale_rows(scale, x.reborrow());
        self.write(x.as_ref());
    }
}

/// The mask of the coefficients of a tile, in products in which a masked row has no effect even if it is NaN, as in [`MaskedWeights`].
///
/// [`MaskedWeights`]: super::masked_weights::MaskedWeights
pub(super) struct MaskedPairs<'a, E> {
    pub mask: &'a dyn TileMask<E>,
    pub tile: &'a Tile,
}

impl<E: Pooled> MaskedPairs<'_, E> {
    /// `to += C rows`: one row per query from one row per key.
    ///
    /// `coefficients`: `[queries, pairs of keys]`; `rows`: `[pairs of keys, columns]`.
    pub(super) fn add_matmul(
        &self,
        coefficients: Matrix<'_, Pair>,
        rows: Matrix<'_, Pair>,
        to: MatrixMut<'_, E>,
    ) {
        let candidates = self.tile.partial_columns().flatten();
        self.add(Side::Queries, coefficients, rows, candidates, to);
    }

    /// `to += Cᵀ rows`: one row per key from one row per query.
    ///
    /// `coefficients`: `[pairs of queries, keys]`, and perhaps columns behind them; `rows`: `[pairs of queries, columns]`.
    pub(super) fn add_transposed_matmul(
        &self,
        coefficients: Matrix<'_, Pair>,
        rows: Matrix<'_, Pair>,
        to: MatrixMut<'_, E>,
    ) {
        let of_keys = coefficients.some_cols(0..self.tile.keys.len()).transposed();
        let candidates = match self.tile.is_partial() {
            true => 0..self.tile.queries.len(),
            false => 0..0,
        };
        self.add(Side::Keys, of_keys, rows, candidates, to);
    }

    fn add(
        &self,
        side: Side,
        coefficients: Matrix<'_, Pair>,
        rows: Matrix<'_, Pair>,
        candidates: impl Iterator<Item = usize>,
        mut to: MatrixMut<'_, E>,
    ) {
        let is_finite = |row: &usize| Pair::are_finite(rows.row(row / 2))[row % 2];
        let non_finite: Vec<usize> = candidates.filter(|row| !is_finite(row)).collect();
        let add = |to: MatrixMut<'_, E>, rows: Matrix<'_, Pair>| {
            self.tile.bands().for_each_rows(side, to, |to, of, depths| {
                let pairs = depths.start / 2..depths.end.div_ceil(2);
                let coefficients = coefficients.part(of, pairs.clone());
                multiply(to, Initial::Old, coefficients, rows.some_rows(pairs));
            });
        };
        if non_finite.is_empty() {
            return add(to, rows);
        }
        let finite = zeroed(rows, &non_finite);
        add(to.reborrow(), finite.read());
        let hidden = hidden(self.mask, self.tile);
        let hidden = match side {
            Side::Queries => hidden.read(),
            Side::Keys => hidden.read().transposed(),
        };
        for row in non_finite {
            let number = |pair: Pair| E::of_f32(pair.numbers()[row % 2]);
            for i in 0..to.rows() {
                if hidden.get(i, row) == E::ZERO {
                    let factor = number(coefficients.get(i, row / 2));
                    let row = rows.row(row / 2);
                    for (to, pair) in to.row_mut(i).iter_mut().zip(row) {
                        *to += factor * number(*pair);
                    }
                }
            }
        }
    }
}

/// A copy with zeros in these rows of numbers.
fn zeroed(pairs: Matrix<'_, Pair>, rows: &[usize]) -> PairPanel {
    let mut copy = PairPanel::new(pairs.rows(), pairs.cols());
    let mut to = copy.write();
    for row in 0..pairs.rows() {
        to.row_mut(row).copy_from_slice(pairs.row(row));
    }
    for row in rows {
        for pair in to.row_mut(row / 2) {
            let mut numbers = pair.numbers();
            numbers[row % 2] = 0.0;
            *pair = Pair::new(numbers[0], numbers[1]);
        }
    }
    copy
}
