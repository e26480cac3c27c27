//! Products with a packed right side, on all threads.
//!
//! The result is cut into parts. A thread packs the columns of a part, which then stay in the second-level cache, and multiplies them with the
//! rows of the part. Columns that are near each other already are read where they stand. The order of a sum is that of the depth, so the bits depend neither on the parts nor on the number of threads.

use std::{mem, ops::Range};

use smallvec::SmallVec;

use super::fold::add_column_sums;
use super::panel::Panel;
use super::parallel::{FEW, FEW_MULTIPLICATIONS, for_each, threads};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{
    Initial, Isa, Panels, TILE_ROWS, WriteMode, multiply_panels, panel_columns, tile_columns,
    vector_columns,
};
use crate::simd::{pack_rows, transpose};

/// The bytes of the columns of a part: a half of a second-level cache.
pub(super) const STRIP: usize = 600 * 1024;
/// The most depths that are multiplied at a time.
const DEPTHS: usize = 512;
/// The least rows of a part, unless there are fewer: all parts of the same columns pack these.
const LEAST_ROWS: usize = 48;
/// The tiles whose rows are summed at a time: with all depths of a block, a part of a second-level cache.
const SUMMED_TILES: usize = 8;
/// The most bytes between rows that are read where they stand. Of rows that are further apart, each depth is in a page of its own, and copying
/// them first is faster.
const NEAR: usize = 4096;
/// The depths that are summed one after another.
const SUMMED: usize = 256;

/// Whether tiles have fewer columns than the widest ones. Both sides are read more often then, so that numbers that are far apart are copied first.
fn has_narrow_tiles<E: Pooled>() -> bool {
    tile_columns::<E>() < panel_columns::<E>()
}

/// Whether a product of so many rows is faster here than by `gemm`, where the rows of both sides are contiguous. With vectors of 64 bytes both are as
/// fast, and those of NEON were not measured.
pub(super) fn beats_gemm(rows: usize) -> bool {
    rows >= LEAST_ROWS && Isa::current() == Isa::Avx2
}

/// Whether the rows of a product are copied first: those whose columns are contiguous.
fn copies_rows<E: Pooled>(rows: Matrix<'_, E>) -> bool {
    has_narrow_tiles::<E>() && !rows.has_row_slices() && rows.transposed().has_row_slices()
}

/// How threads share a product, by its right side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// The number of panels from which on a thread has columns of its own. With fewer, threads share the columns and divide the rows: each copies
    /// all columns, but no two threads write to neighbouring cache lines.
    pub panels_of_a_thread: usize,
    /// The columns of a part are a multiple of these, but for the last ones.
    pub unit: usize,
    /// The rows of a part are a multiple of these, but for the last ones.
    pub row_unit: usize,
    /// Reading a number of the right side takes as long as multiplying it with so many rows.
    pub rows_per_read: usize,
}

impl Sharing {
    /// The sharing of a right side that each thread copies to panels.
    pub(super) const fn packed<E>() -> Self {
        Self {
            panels_of_a_thread: 4,
            unit: vector_columns::<E>(),
            row_unit: TILE_ROWS,
            rows_per_read: 1,
        }
    }
}

/// The right side of a product, wherever its numbers are.
pub(super) trait Columns<E>: Sync {
    /// How threads share it.
    const SHARING: Sharing = Sharing::packed::<E>();

    /// Copies some columns at some depths to panels of `width`. Those behind the last are zeros, as any number may be subnormal, which is slow.
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, width: usize, panels: &mut [E]);

    /// The same columns where they stand, if the microkernel can read them there as fast.
    fn in_place(&self, columns: Range<usize>, depths: Range<usize>) -> Option<Panels<'_, E>> {
        let _ = (columns, depths);
        None
    }
}

/// `copy(some, to)` for the columns of each panel of `width`. Those behind the last are zeros.
pub(super) fn for_each_panel<E: Pooled>(
    columns: Range<usize>,
    depth: usize,
    width: usize,
    panels: &mut [E],
    copy: impl FnMut(Range<usize>, MatrixMut<'_, E>),
) {
    for_some_depths(columns, [depth, width], 0..depth, panels, copy);
}

/// The same for some depths of panels `[depth, width]`.
pub(super) fn for_some_depths<E: Pooled>(
    columns: Range<usize>,
    [depth, width]: [usize; 2],
    depths: Range<usize>,
    panels: &mut [E],
    mut copy: impl FnMut(Range<usize>, MatrixMut<'_, E>),
) {
    let panels = panels.chunks_mut((width * depth).max(1));
    for (first, to) in columns.clone().step_by(width).zip(panels) {
        let some = first..columns.end.min(first + width);
        let to = MatrixMut::new(to, depth, width).some_rows(depths.clone());
        let (to, mut rest) = to.split_cols(some.len());
        rest.fill(E::ZERO);
        copy(some, to);
    }
}

/// A matrix whose rows are contiguous.
impl<E: Pooled> Columns<E> for Matrix<'_, E> {
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, width: usize, panels: &mut [E]) {
        pack_rows(self.part(depths, columns), width, panels);
    }

    fn in_place(&self, columns: Range<usize>, depths: Range<usize>) -> Option<Panels<'_, E>> {
        let rows = self.part(depths, columns);
        let is_near = rows.row_stride() * size_of::<E>() <= NEAR;
        (is_near && !has_narrow_tiles::<E>()).then(|| Panels::in_place(rows))?
    }
}

/// The transpose of a matrix whose rows are contiguous: the weights of a linear map.
pub(super) struct Transposed<'a, E>(pub(super) Matrix<'a, E>);

impl<E: Pooled> Transposed<'_, E> {
    /// Copies some columns at some depths, `[depths, columns]`: the rows in bands, each of as many rows as a vector has lanes. The processor foresees
    /// reads along so few rows, and not along all of them at once.
    pub(super) fn copy(&self, columns: Range<usize>, depths: Range<usize>, to: MatrixMut<'_, E>) {
        let rows = self.0.part(columns, depths);
        let band = vector_columns::<E>();
        let bands = rows.row_chunks(band).zip(to.col_chunks(band));
        bands.for_each(|(rows, to)| transpose(rows, to));
    }
}

impl<E: Pooled> Columns<E> for Transposed<'_, E> {
    fn pack(&self, columns: Range<usize>, depths: Range<usize>, width: usize, panels: &mut [E]) {
        for_each_panel(columns, depths.len(), width, panels, |columns, to| {
            self.copy(columns, depths.clone(), to);
        });
    }
}

/// `to = initial + rows columns`, where `to` is in pieces side by side.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn multiply_packed<'a, E: Pooled>(
    to: impl IntoIterator<Item = MatrixMut<'a, E>>,
    initial: Initial<'_, E>,
    rows: Matrix<'_, E>,
    columns: &impl Columns<E>,
) {
    multiply_and_sum(to, initial, rows, columns, &mut []);
}

/// [`multiply_packed`], which adds the sum of each row to its number in `sums`, if there are any, or writes it over that if `initial` is zero. The
/// columns of `rows` are contiguous then.
///
/// # Panics
/// If the shapes do not fit.
pub(super) fn multiply_and_sum<'a, E: Pooled, C: Columns<E>>(
    to: impl IntoIterator<Item = MatrixMut<'a, E>>,
    initial: Initial<'_, E>,
    rows: Matrix<'_, E>,
    columns: &C,
    sums: &'a mut [E],
) {
    let to = to.into_iter().collect();
    let panel = panel_columns::<E>() * rows.cols().clamp(1, DEPTHS) * size_of::<E>();
    let extents = [rows.rows(), rows.cols()];
    let parts = parts(to, initial, extents, C::SHARING, panel, sums);
    for_each(parts, |part: Part<'_, E>| {
        part.multiply(initial, rows, columns);
    });
}

/// A matrix in pieces side by side.
pub(super) type Pieces<'a, E> = SmallVec<[MatrixMut<'a, E>; 4]>;

/// Some rows and columns of a result.
pub(super) struct Part<'a, E> {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    pub(super) to: Pieces<'a, E>,
    /// The sums of the rows, if this part computes them.
    pub(super) sums: &'a mut [E],
}

/// Cuts the result of a product of `count` rows into parts, about the same number for each thread. One thread computes a small product. A packed
/// panel takes so many bytes.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn parts<'a, E: Pooled>(
    to: Pieces<'a, E>,
    initial: Initial<'_, E>,
    [count, depth]: [usize; 2],
    sharing: Sharing,
    panel: usize,
    mut sums: &'a mut [E],
) -> SmallVec<[Part<'a, E>; FEW]> {
    let all = to.iter().map(MatrixMut::cols).sum::<usize>();
    assert!(
        to.iter().all(|to| to.rows() == count),
        "the products of {count} rows in {to:?}"
    );
    assert!(
        sums.is_empty() || sums.len() == count,
        "{} sums of {count} rows",
        sums.len()
    );
    match initial {
        Initial::OfRows(of) => assert_eq!(of.len(), count, "a number for each row"),
        Initial::OfColumns(of) => assert_eq!(of.len(), all, "a number for each column"),
        Initial::Zero | Initial::Old => {}
    }
    let panels = all.div_ceil(panel_columns::<E>());
    let work = count.max(sharing.rows_per_read) * depth * all.max(1);
    let threads = match work <= FEW_MULTIPLICATIONS {
        true => 1,
        false => threads(),
    };
    let by_columns = (panels / sharing.panels_of_a_thread).clamp(1, threads);
    let by_rows = threads.div_ceil(by_columns).min(count / LEAST_ROWS).max(1);
    let by_columns = threads.div_ceil(by_rows);
    let most = (STRIP / panel).max(1);
    let strips_of = panels.div_ceil(most).next_multiple_of(by_columns);
    let strips = strips(to, all, sharing.unit, strips_of.min(panels).max(1));
    let height = count
        .div_ceil(by_rows)
        .next_multiple_of(sharing.row_unit)
        .max(1);
    let parts = strips.into_iter().flat_map(|(columns, to)| {
        // The parts of the first columns compute the sums.
        let mut sums = mem::take(&mut sums).chunks_mut(height);
        let parts = row_chunks(to, count, height);
        parts.map(move |(rows, to)| Part {
            rows,
            columns: columns.clone(),
            to,
            sums: sums.next().unwrap_or_default(),
        })
    });
    parts.collect()
}

/// Cuts a result into so many strips of columns, whose bounds are multiples of a unit.
pub(super) fn strips<'a, E: Pooled>(
    to: Pieces<'a, E>,
    all: usize,
    unit: usize,
    count: usize,
) -> SmallVec<[(Range<usize>, Pieces<'a, E>); FEW]> {
    let units = all.div_ceil(unit);
    let mut pieces = to.into_iter().filter(|to| to.cols() > 0);
    let mut rest = pieces.next();
    let strips = (0..count).map(|index| {
        let bound = |index: usize| all.min(index * units / count * unit);
        let columns = bound(index)..bound(index + 1);
        let mut to = Pieces::new();
        let mut space = columns.len();
        while space > 0 {
            let Some(piece) = rest.take() else { break };
            let at = space.min(piece.cols());
            let (piece, others) = piece.split_cols(at);
            space -= at;
            to.push(piece);
            rest = match others.cols() {
                0 => pieces.next(),
                _ => Some(others),
            };
        }
        (columns, to)
    });
    strips.collect()
}

/// Cuts pieces of so many rows into chunks of rows.
pub(super) fn row_chunks<'a, E>(
    to: Pieces<'a, E>,
    rows: usize,
    height: usize,
) -> impl Iterator<Item = (Range<usize>, Pieces<'a, E>)> {
    let pieces = to.into_iter().map(move |to| to.row_chunks(height));
    let mut pieces: SmallVec<[_; 4]> = pieces.collect();
    (0..rows).step_by(height).map(move |first| {
        let to = pieces.iter_mut().filter_map(Iterator::next).collect();
        (first..rows.min(first + height), to)
    })
}

impl<E: Pooled> Part<'_, E> {
    fn multiply(mut self, initial: Initial<'_, E>, rows: Matrix<'_, E>, from: &impl Columns<E>) {
        let width = tile_columns::<E>();
        let mut initial = initial.part(self.rows.clone(), self.columns.clone());
        let rows = rows.some_rows(self.rows.clone());
        let depth = rows.cols();
        // Blocks of about the same depth, and one where there is no depth at all.
        let block = depth.div_ceil(depth.div_ceil(DEPTHS).max(1)).max(1);
        let panels = self.columns.len().div_ceil(width);
        let mut packed = None;
        let mut sums = Sums::new(mem::take(&mut self.sums), initial);
        for first in (0..depth.max(1)).step_by(block) {
            let depths = first..depth.min(first + block);
            let columns = match from.in_place(self.columns.clone(), depths.clone()) {
                Some(columns) => columns,
                None => {
                    let whole = || Buffer::uninit(panels * width * block.min(depth));
                    let packed: &mut Buffer<E> = packed.get_or_insert_with(whole);
                    let some = &mut packed[..panels * width * depths.len()];
                    from.pack(self.columns.clone(), depths.clone(), width, some);
                    Panels::new(some, depths.len(), width)
                }
            };
            let rows = rows.some_cols(depths);
            match sums.is_empty() && !copies_rows(rows) {
                true => multiply_panels(&mut self.to, initial, rows, columns),
                false => self.multiply_blocks(initial, rows, columns, &mut sums),
            }
            initial = Initial::Old;
        }
        sums.write();
    }

    /// Multiplies blocks of rows, and sums those of a block while they are in a cache. Rows may be [copied](copies_rows) first.
    fn multiply_blocks(
        &mut self,
        initial: Initial<'_, E>,
        rows: Matrix<'_, E>,
        columns: Panels<'_, E>,
        sums: &mut Sums<'_, E>,
    ) {
        let to = self.to.iter_mut().map(MatrixMut::reborrow).collect();
        let some = SUMMED_TILES * TILE_ROWS;
        let mut copied = None;
        for (chunk, mut to) in row_chunks(to, rows.rows(), some) {
            let rows = rows.some_rows(chunk.clone());
            let initial = initial.part(chunk.clone(), 0..self.columns.len());
            if copies_rows(rows) {
                let copied = copied.get_or_insert_with(|| Panel::new(some, rows.cols()));
                transpose(rows.transposed(), copied.reshape(chunk.len(), rows.cols()));
                multiply_panels(&mut to, initial, copied.read(), columns);
            } else {
                multiply_panels(&mut to, initial, rows, columns);
            }
            if !sums.is_empty() {
                sums.add(rows, chunk);
            }
        }
    }
}

/// Sums of rows whose numbers come in blocks of depths.
pub(super) struct Sums<'a, E> {
    to: &'a mut [E],
    into: WriteMode,
    /// There may be many blocks.
    totals: Vec<f64>,
}

impl<'a, E: Pooled> Sums<'a, E> {
    pub(super) fn new(to: &'a mut [E], initial: Initial<'_, E>) -> Self {
        let into = match initial {
            Initial::Zero => WriteMode::Overwrite,
            _ => WriteMode::Add,
        };
        let totals = vec![0.0; to.len()];
        Self { to, into, totals }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to.is_empty()
    }

    pub(super) fn add(&mut self, rows: Matrix<'_, E>, which: Range<usize>) {
        let mut sums = Buffer::uninit(which.len());
        let depth = rows.cols();
        for first in (0..depth).step_by(SUMMED) {
            sums.fill(E::ZERO);
            let some = rows.some_cols(first..depth.min(first + SUMMED));
            add_column_sums(some.transposed(), &mut sums);
            for (total, &sum) in self.totals[which.clone()].iter_mut().zip(&*sums) {
                *total += sum.into();
            }
        }
    }

    pub(super) fn write(self) {
        for (to, total) in self.to.iter_mut().zip(self.totals) {
            let total = E::of_f64(total);
            *to = match self.into {
                WriteMode::Overwrite => total,
                WriteMode::Add => *to + total,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads, wide,
    };

    /// Rows, depth and columns: around panels, vectors, blocks of rows and blocks of depths.
    fn shapes() -> impl Iterator<Item = [usize; 3]> {
        let rows = [0, 1, 3, 7, 8, 9, 17].into_iter();
        let depths = [0, 1, 2, 33];
        let columns = [0, 1, 15, 16, 17, 23, 24, 25, 47, 48, 49, 97, 130];
        let small = rows.flat_map(move |m| {
            let depths = depths.into_iter();
            depths.flat_map(move |k| columns.map(|n| [m, k, n]))
        });
        small.chain([
            [3, 3 * DEPTHS + 1, 50],
            [1, 2 * DEPTHS, 1],
            [9, DEPTHS + 1, 300],
            [48, 2, 33],
            [50, 33, 40],
            [103, 3, 17],
        ])
    }

    /// `[m, n]` in pieces of so many columns, each with a column beside it that is not its own.
    fn pieces<E: Copy>(numbers: &[E], m: usize, n: usize, width: usize, fill: E) -> Vec<Vec<E>> {
        let starts = (0..n).step_by(width.max(1));
        let piece = |start: usize| {
            let end = n.min(start + width);
            let row = |i: usize| {
                numbers[i * n + start..i * n + end]
                    .iter()
                    .copied()
                    .chain([fill])
            };
            (0..m).flat_map(row).collect()
        };
        starts.map(piece).collect()
    }

    fn check<E: Pooled>([m, k, n]: [usize; 3], width: usize, epsilon: f64) {
        let (a, b) = (noise::<E>(m * k, 1), noise::<E>(k * n, 2));
        let [of_rows, of_columns, old] =
            [(m, 3), (n, 4), (m * n, 5)].map(|(len, seed)| noise::<E>(len, seed));
        let right = Matrix::new(&b, k, n);
        let [wide_a, wide_b] = [wide(&a), wide(&b)];
        let sum = |i: usize, j: usize| -> f64 {
            (0..k).map(|l| wide_a[i * k + l] * wide_b[l * n + j]).sum()
        };
        let sums: Vec<f64> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
        // The columns of the rows are contiguous.
        let transposed: Vec<E> = (0..m * k)
            .map(|i| a[i % m.max(1) * k + i / m.max(1)])
            .collect();
        // The rows stand beside numbers that are none of theirs.
        let apart: Vec<E> = (0..m * (k + 3))
            .map(|i| match i % (k + 3) {
                l if l < k => a[i / (k + 3) * k + l],
                _ => E::NAN,
            })
            .collect();
        for rows in [
            Matrix::new(&a, m, k),
            Matrix::new(&apart, m, k + 3).some_cols(0..k),
            Matrix::new(&transposed, k, m).transposed(),
        ] {
            for initial in [
                Initial::Zero,
                Initial::Old,
                Initial::OfRows(&of_rows),
                Initial::OfColumns(&of_columns),
            ] {
                let before = |at: usize| match initial {
                    Initial::Zero => E::ZERO,
                    Initial::Old => old[at],
                    Initial::OfRows(of) => of[at / n],
                    Initial::OfColumns(of) => of[at % n],
                };
                let want: Vec<f64> = (0..m * n)
                    .map(|at| Into::<f64>::into(before(at)) + sums[at])
                    .collect();
                let start = match initial {
                    Initial::Old => old.clone(),
                    _ => vec![E::NAN; m * n],
                };
                let mut to = pieces(&start, m, n, width, E::TWO);
                let widths = (0..n).step_by(width).map(|start| width.min(n - start));
                let views = to.iter_mut().zip(widths);
                let views = views.map(|(to, cols)| MatrixMut::strided(to, m, cols, cols + 1));
                multiply_packed(views, initial, rows, &right);
                // Each of the sums is rounded once for each product, and stays below this.
                let most = 2.0 * (k as f64).sqrt() + 3.0;
                let close = Absolute(epsilon * (k as f64 + 2.0) * most);
                let want = pieces(&want, m, n, width, 2.0);
                assert_close(
                    format!("{m} x {k} x {n} in {width}, {initial:?}"),
                    &to.concat(),
                    &want.concat(),
                    close,
                );
            }
        }
    }

    #[test]
    fn products_are_added_to_the_initial_numbers() {
        on_every_isa(|_| {
            for shape in shapes() {
                for width in [1, 5, 50, 1000] {
                    check::<f32>(shape, width, 6e-8);
                }
                check::<f64>(shape, 19, 1.2e-16);
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads_and_columns() {
        for [m, k, n] in [[70, 300, 700], [17, DEPTHS + 5, 200]] {
            let (a, b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
            let right = Matrix::new(&b, k, n);
            let columns = |some: Range<usize>| {
                let rows = Matrix::new(&a, m, k);
                let mut to = vec![0.0; m * some.len()];
                let view = MatrixMut::new(&mut to, m, some.len());
                multiply_packed([view], Initial::Zero, rows, &right.some_cols(some));
                to
            };
            same_for_all_threads(|| {
                let all = columns(0..n);
                for some in [0..1, 13..14, 13..90, n - 49..n] {
                    let part = columns(some.clone());
                    let of_all = (0..m).flat_map(|i| &all[i * n..][some.clone()]);
                    assert!(part.iter().eq(of_all), "columns {some:?}");
                }
                all
            });
        }
    }

    /// A row with NaN, and a column with an infinity, which meets a zero in another row.
    #[test]
    fn numbers_that_are_not_finite_stay_in_their_row_and_column() {
        on_every_isa(|isa| {
            let [m, k, n] = [11, 20, 70];
            let (mut a, mut b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
            a[3 * k + 5] = f32::NAN;
            b[7 * n + 60] = f32::INFINITY;
            a[9 * k + 7] = 0.0;
            let mut to = vec![0.0; m * n];
            let rows = Matrix::new(&a, m, k);
            let right = Matrix::new(&b, k, n);
            multiply_packed([MatrixMut::new(&mut to, m, n)], Initial::Zero, rows, &right);
            for (at, x) in to.iter().enumerate() {
                match (at / n, at % n) {
                    (3, _) | (9, 60) => assert!(x.is_nan(), "{x} on {isa}"),
                    (i, 60) => assert_eq!(*x, a[i * k + 7] * f32::INFINITY, "on {isa}"),
                    _ => assert!(x.is_finite(), "{x} on {isa}"),
                }
            }
        });
    }

    #[test]
    #[should_panic(expected = "a number for each row")]
    fn a_bias_of_another_length_is_refused() {
        let numbers = [1.0_f32; 12];
        let rows = Matrix::new(&numbers, 3, 4);
        let right = Matrix::new(&numbers, 4, 3);
        let mut to = [0.0; 9];
        let to = MatrixMut::new(&mut to, 3, 3);
        multiply_packed([to], Initial::OfRows(&[1.0; 2]), rows, &right);
    }
}
