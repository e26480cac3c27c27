//! Products whose operands are rounded to bf16 while they are packed.
//!
//! ```text
//! to = initial + bf16(rows) bf16(columns)
//! ```
//!
//! Numbers are rounded to the nearest one in bf16, and to the even one of two. Those of two neighbouring depths are a [`Pair`]. Sums are in the type
//! of the numbers: in the order of the depth, but the second of each pair before the first, as the instruction of AVX-512 BF16 adds them. Each block
//! of depths is summed on its own. So the bits depend neither on the number of threads nor, for `f32`, on the instruction set, except that AMX adds the even
//! and the odd depths of each 32 on their own (`simd/pairs.rs`).
//!
//! Columns may stand in panels already. The parts of a product are those of [`packed`](super::packed).

use std::{mem, ops::Range};

use super::packed::{Part, Pieces, STRIP, Sharing, Sums, Transposed, parts, row_chunks};
use super::parallel::for_each;
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Initial, Pair, PairPanels, Panels, pair_tile_rows, panel_columns};

/// The numbers that the products of a pass multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// Those of the model.
    #[default]
    Model,
    /// Operands rounded to bf16: the sign, the exponent and the first 7 bits of an `f32`, to the nearest number and to the even one of two. Subnormal
    /// ones become 0. Sums are in the type of the model.
    Bf16,
}

/// The most depths that are multiplied at a time: 384 columns with so many depths fit a [`STRIP`].
const DEPTHS: usize = 768;
/// The depths that are copied at a time, before they are rounded: a part of a first-level cache.
const COPIED: usize = 64;
/// The depths that one instruction of AMX multiplies. Those of a block are a multiple.
const GROUP: usize = 32;
/// The rows that are packed at a time, but for those that fill the last tile: with all depths of a block, a part of a second-level cache.
const ROWS: usize = 48;

/// The right side of a product, wherever its numbers are.
pub(super) trait PairColumns<E>: Sync {
    /// How threads share it.
    const SHARING: Sharing = Sharing::packed::<E>();

    /// Makes pairs of some columns at some depths: `[pairs, columns]`. Those behind the last one, and a depth behind the last one, are zeros.
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, panel: MatrixMut<'_, Pair>);

    /// The same columns where they stand, if they are pairs in panels.
    fn in_place(&self, columns: Range<usize>, depths: Range<usize>) -> Option<PairPanels<'_>> {
        let _ = (columns, depths);
        None
    }
}

/// A matrix whose rows are contiguous.
impl<E: Pooled> PairColumns<E> for Matrix<'_, E> {
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, panel: MatrixMut<'_, Pair>) {
        E::pair_rows(self.part(depths, columns), panel);
    }
}

impl<E: Pooled> PairColumns<E> for Transposed<'_, E> {
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, panel: MatrixMut<'_, Pair>) {
        let width = columns.len();
        let mut copied = Buffer::uninit(width * COPIED.min(depths.len()));
        let blocks = panel.row_chunks(COPIED / 2);
        for (start, to) in depths.clone().step_by(COPIED).zip(blocks) {
            let some = start..depths.end.min(start + COPIED);
            let rows = some.len();
            let copied = &mut copied[..width * rows];
            self.copy(columns.clone(), some, MatrixMut::new(copied, rows, width));
            E::pair_rows(Matrix::new(copied, rows, width), to);
        }
    }
}

/// [`multiply_and_sum`](super::packed::multiply_and_sum) of rounded operands. The sums of the rows are those of the numbers before they are rounded.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn multiply_rounded<'a, E: Pooled, C: PairColumns<E>>(
    to: impl IntoIterator<Item = MatrixMut<'a, E>>,
    initial: Initial<'_, E>,
    rows: Matrix<'_, E>,
    columns: &C,
    sums: &'a mut [E],
) {
    let to: Pieces<'a, E> = to.into_iter().collect();
    let pairs = block_of(rows.cols()).div_ceil(2);
    let panel = panel_columns::<E>() * pairs * size_of::<Pair>();
    let extents = [rows.rows(), rows.cols()];
    let cols = to.iter().map(MatrixMut::cols).sum::<usize>();
    let mut sharing = Sharing {
        row_unit: pair_tile_rows(),
        ..C::SHARING
    };
    // Each thread rounds the rows and the columns that it multiplies. If its cache has room for all columns, and there are fewer columns than rows, threads divide
    // the rows, so that each row is rounded once.
    let is_strip = cols.div_ceil(panel_columns::<E>()) * panel <= STRIP;
    if is_strip && cols < rows.rows() {
        sharing.panels_of_a_thread = usize::MAX;
    }
    let parts = parts(to, initial, extents, sharing, panel, sums);
    for_each(parts, |part: Part<'_, E>| {
        multiply(part, initial, rows, columns);
    });
}

/// The depths of a block, a multiple of [`GROUP`]: about the same for all blocks.
fn block_of(depth: usize) -> usize {
    let blocks = depth.div_ceil(DEPTHS).max(1);
    depth.div_ceil(blocks).max(1).next_multiple_of(GROUP)
}

fn multiply<E: Pooled>(
    mut part: Part<'_, E>,
    initial: Initial<'_, E>,
    rows: Matrix<'_, E>,
    from: &impl PairColumns<E>,
) {
    let width = panel_columns::<E>();
    let initial = initial.part(part.rows.clone(), part.columns.clone());
    let rows = rows.some_rows(part.rows.clone());
    let depth = rows.cols();
    let block = block_of(depth);
    let most = block.min(depth).div_ceil(2);
    let panels = part.columns.len().div_ceil(width);
    let most_rows = ROWS.next_multiple_of(pair_tile_rows());
    let mut left = Buffer::<f32>::uninit(most_rows.min(rows.rows()) * most);
    let mut right = None;
    let mut sums = Sums::new(mem::take(&mut part.sums), initial);
    let mut of_block = initial;
    for first in (0..depth.max(1)).step_by(block) {
        let depths = first..depth.min(first + block);
        let pairs = depths.len().div_ceil(2);
        let columns = match from.in_place(part.columns.clone(), depths.clone()) {
            Some(columns) => columns,
            None => {
                let whole = || Buffer::<f32>::uninit(panels * width * most);
                let right = right.get_or_insert_with(whole);
                let right = Pair::in_memory_of(&mut right[..panels * width * pairs]);
                pack_columns(from, part.columns.clone(), depths.clone(), right);
                PairPanels::new(Panels::new(right, pairs, width), part.columns.len())
            }
        };
        let rows = rows.some_cols(depths);
        let to = part.to.iter_mut().map(MatrixMut::reborrow).collect();
        for (chunk, mut to) in row_chunks(to, rows.rows(), most_rows) {
            let next = chunk.end..rows.rows().min(chunk.end + most_rows);
            let next = (!next.is_empty()).then(|| rows.some_rows(next));
            let rows = rows.some_rows(chunk.clone());
            let left = Pair::in_memory_of(&mut left[..chunk.len() * pairs]);
            let packed = pack_rows(rows, left);
            let initial = of_block.part(chunk.clone(), 0..part.columns.len());
            E::multiply_pairs(&mut to, initial, packed, &columns, next);
            if !sums.is_empty() {
                sums.add(rows, chunk);
            }
        }
        of_block = Initial::Old;
    }
    sums.write();
}

/// Packs the columns.
fn pack_columns<E: Pooled>(
    from: &impl PairColumns<E>,
    columns: Range<usize>,
    depths: Range<usize>,
    panels: &mut [Pair],
) {
    let width = panel_columns::<E>();
    let pairs = depths.len().div_ceil(2);
    let panels = panels.chunks_mut((width * pairs).max(1));
    for (first, panel) in columns.clone().step_by(width).zip(panels) {
        let columns = first..columns.end.min(first + width);
        from.pack(columns, depths.clone(), MatrixMut::new(panel, pairs, width));
    }
}

/// Packs rows whose numbers, or those of neighbouring rows, stand side by side.
fn pack_rows<'a, E: Pooled>(rows: Matrix<'_, E>, to: &'a mut [Pair]) -> Matrix<'a, Pair> {
    let (count, pairs) = (rows.rows(), rows.cols().div_ceil(2));
    if rows.has_row_slices() {
        E::pair_columns(rows, MatrixMut::new(to, count, pairs));
        return Matrix::new(to, count, pairs);
    }
    E::pair_rows(rows.transposed(), MatrixMut::new(to, pairs, count));
    Matrix::new(to, pairs, count).transposed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::packed::Transposed;
    use crate::kernel::testing::{noise, on_every_isa, same_for_all_threads};
    use crate::simd::Isa;

    /// Sizes around those of pairs, vectors, panels, chunks of rows and blocks of depths.
    const SHAPES: [[usize; 3]; 11] = [
        [0, 3, 2],
        [3, 0, 2],
        [2, 3, 0],
        [1, 1, 1],
        [5, 2, 17],
        [47, 63, 65],
        [49, 64, 64],
        [50, 65, 200],
        [7, 769, 33],
        [60, 129, 150],
        [3, 1538, 5],
    ];

    fn bf16(x: f32) -> f32 {
        Pair::new(x, 0.0).numbers()[0]
    }

    /// `sum + bf16(a) bf16(b)`, rounded once.
    fn step(sum: f32, (a, b): (&f32, &f32)) -> f32 {
        (f64::from(bf16(*a)) * f64::from(bf16(*b)) + f64::from(sum)) as f32
    }

    /// The sum of a block of depths, in the order of the instruction for pairs.
    fn sum_of_pairs(a: &[f32], b: &[f32]) -> f32 {
        let pairs = a.chunks(2).zip(b.chunks(2));
        pairs.fold(0.0, |sum, (a, b)| a.iter().zip(b).rev().fold(sum, step))
    }

    /// The same in the order of tiles.
    fn sum_of_tiles(a: &[f32], b: &[f32]) -> f32 {
        let groups = a.chunks(32).zip(b.chunks(32));
        groups.fold(0.0, |sum, (a, b)| {
            let half = |first: usize| a.iter().zip(b).skip(first).step_by(2).fold(0.0, step);
            sum + (half(0) + half(1))
        })
    }

    /// The sums of all blocks of depths.
    fn reference(isa: Isa, initial: Option<f32>, a: &[f32], b: &[f32]) -> f32 {
        let depth = a.len();
        let blocks = depth.div_ceil(768).max(1);
        let block = depth.div_ceil(blocks).max(1).next_multiple_of(32);
        let of_block = match isa {
            Isa::Amx => sum_of_tiles,
            _ => sum_of_pairs,
        };
        let mut total = initial;
        for (a, b) in a.chunks(block).zip(b.chunks(block)) {
            let sum = of_block(a, b);
            total = Some(total.map_or(sum, |total| total + sum));
        }
        total.unwrap_or(0.0)
    }

    /// Every layout of both sides has the bits of the reference, on every instruction set.
    #[test]
    fn products_are_those_of_rounded_operands() {
        on_every_isa(|isa| {
            for [m, k, n] in SHAPES {
                let (a, b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
                let bias = noise::<f32>(n, 3);
                let transposed = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
                    let all = (0..cols).flat_map(|j| (0..rows).map(move |i| x[i * cols + j]));
                    all.collect()
                };
                let (a_t, b_t) = (transposed(&a, m, k), transposed(&b, k, n));
                let rows = [Matrix::new(&a, m, k), Matrix::new(&a_t, k, m).transposed()];
                for (index, rows) in rows.into_iter().enumerate() {
                    for initial in [Initial::Zero, Initial::Old, Initial::OfColumns(&bias)] {
                        let start = |j: usize| match initial {
                            Initial::Old => Some(0.5),
                            Initial::OfColumns(bias) => Some(bias[j]),
                            _ => None,
                        };
                        let want: Vec<f32> = (0..m * n)
                            .map(|at| {
                                let (i, j) = (at / n, at % n);
                                reference(isa, start(j), &a[i * k..][..k], &b_t[j * k..][..k])
                            })
                            .collect();
                        let mut sums = vec![0.5; m];
                        let check = |got: Vec<f32>, what: &str| {
                            let same = got.iter().zip(&want).all(|(a, b)| a == b);
                            assert!(same, "{m} x {k} x {n}, {what}, rows {index}, {isa}");
                        };
                        let mut got = vec![0.5; m * n];
                        let to = [MatrixMut::new(&mut got, m, n)];
                        multiply_rounded(to, initial, rows, &Matrix::new(&b, k, n), &mut []);
                        check(got, "rows");
                        let mut got = vec![0.5; m * n];
                        let to = [MatrixMut::new(&mut got, m, n)];
                        let columns = Transposed(Matrix::new(&b_t, n, k));
                        let sums = if index == 1 { &mut sums[..] } else { &mut [] };
                        multiply_rounded(to, initial, rows, &columns, sums);
                        check(got, "columns");
                    }
                }
            }
        });
    }

    /// The sums are those of products that round nothing.
    #[test]
    fn sums_of_rows_are_not_rounded() {
        let [depth, count, cols] = [700, 130, 33];
        let (a, b) = (
            noise::<f32>(depth * count, 1),
            noise::<f32>(depth * cols, 2),
        );
        let rows = Matrix::new(&a, depth, count).transposed();
        let columns = Matrix::new(&b, depth, cols);
        let mut sums = vec![0.5; count];
        let mut to = vec![0.0; count * cols];
        let view = [MatrixMut::new(&mut to, count, cols)];
        multiply_rounded(view, Initial::Old, rows, &columns, &mut sums);
        let near = |row: usize, sum: f32| {
            let want: f64 = (0..depth).map(|k| f64::from(a[k * count + row])).sum();
            (f64::from(sum) - want - 0.5).abs() < 1e-4
        };
        assert!(sums.iter().enumerate().all(|(row, sum)| near(row, *sum)));
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for [m, k, n] in [[700, 1300, 200], [130, 129, 900], [50, 300, 64]] {
            let (a, b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
            let rows = [Matrix::new(&a, m, k), Matrix::new(&a, k, m).transposed()];
            for rows in rows {
                same_for_all_threads(|| {
                    let mut to = vec![0.5; m * n];
                    let mut sums = vec![0.5; m];
                    let sums_of = if rows.has_row_slices() {
                        &mut []
                    } else {
                        &mut sums[..]
                    };
                    let view = [MatrixMut::new(&mut to, m, n)];
                    let columns = Matrix::new(&b, k, n);
                    multiply_rounded(view, Initial::Old, rows, &columns, sums_of);
                    (to, sums)
                });
            }
        }
    }
}
