//! Weights in bf16: the upper half of an `f32`, rounded to the nearest. They are multiplied as `f32`, so the rows that are multiplied with them
//! are exact.
//!
//! An output is the sum of two: over the even inputs, and over the odd ones. Each operation is rounded. So a result of few rows has the same bits
//! on every instruction set, for any number of threads.

use std::{array, ops::Range};

use super::blocks;
use crate::kernel::{
    Matrix, MatrixMut, Pooled, Real,
    bf16::nearest,
    linear_parts::Parts,
    packed::{Columns, multiply_packed},
    parallel::{SMALL, for_each},
};
use crate::simd::{Initial, Kernel, Vector, run, widened};

/// The rows of a matrix that stand in one line.
const LANES: usize = 16;

/// The most vectors that a line has numbers for.
const MOST_VECTORS: usize = 8;

/// With fewer rows than this, the weights are read where they stand. For more, panels of wider numbers are worth it, whose products are fused.
const FEW_ROWS: usize = 48;

/// The most rows that are multiplied at a time.
const ROWS: usize = 4;

/// The multiplications that are worth a thread.
const SHARE: usize = 32 * SMALL;

/// Two numbers of each of 16 rows, that of an even column in the lower half: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; LANES]);

/// A matrix of weights `[out, in]` in bf16.
#[derive(Debug)]
pub struct Bf16Matrix {
    rows: usize,
    cols: usize,
    /// Panels of 16 rows, each with all columns.
    lines: Vec<Line>,
}

impl Bf16Matrix {
    fn panel(&self, panel: usize) -> &[Line] {
        let each = self.cols.div_ceil(2);
        &self.lines[panel * each..][..each]
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..])
    }

    /// The number of rows, and of columns.
    pub fn extents(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The weights of a row.
    pub fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        self.bits(row).map(widened)
    }

    /// The bits of a row.
    pub fn bits(&self, row: usize) -> impl Iterator<Item = u16> {
        let lines = self.panel(row / LANES).iter();
        let pairs = lines.map(move |line| line.0[row % LANES]);
        let bits = pairs.flat_map(|lane| [lane, lane >> 16].map(|half| half as u16));
        bits.take(self.cols)
    }

    /// The matrix of these bits, row-major.
    ///
    /// # Panics
    /// If their number is not that of the rows times the columns.
    pub fn of_bits(rows: usize, cols: usize, bits: impl ExactSizeIterator<Item = u16>) -> Self {
        assert_eq!(bits.len(), rows * cols, "a number for each place");
        let mut matrix = Self::zeros(rows, cols);
        for (index, bits) in bits.enumerate() {
            matrix.set(index / cols, index % cols, bits);
        }
        matrix
    }

    fn zeros(rows: usize, cols: usize) -> Self {
        Self {
            rows,
            cols,
            lines: vec![Line([0; LANES]); rows.div_ceil(LANES) * cols.div_ceil(2)],
        }
    }

    /// Sets a number that is 0.
    fn set(&mut self, row: usize, col: usize, bits: u16) {
        let line = row / LANES * self.cols.div_ceil(2) + col / 2;
        self.lines[line].0[row % LANES] |= u32::from(bits) << (16 * (col % 2));
    }
}

/// Both numbers of a lane.
#[inline(always)]
fn halves(lane: u32) -> [f32; 2] {
    [lane << 16, lane & 0xffff_0000].map(f32::from_bits)
}

/// Rounds a matrix `[out, in]` to bf16, and returns the error of each row, as [for int8](super::int8::quantize).
///
/// # Panics
/// If its rows are not contiguous.
#[track_caller]
pub(super) fn quantize<E: Real>(w: Matrix<'_, E>) -> (Bf16Matrix, Vec<f32>) {
    let mut matrix = Bf16Matrix::zeros(w.rows(), w.cols());
    let mut errors = vec![0.0; w.rows()];
    let each = w.cols().div_ceil(2).max(1);
    let panels = matrix
        .lines
        .chunks_mut(each)
        .zip(errors.chunks_mut(LANES))
        .enumerate();
    for_each(panels, |(panel, (lines, errors))| {
        for (lane, error) in errors.iter_mut().enumerate() {
            let row = w.row(panel * LANES + lane);
            let mut sums = super::RowError::default();
            for (pair, line) in row.chunks(2).zip(lines.iter_mut()) {
                for (half, weight) in pair.iter().enumerate() {
                    let weight = weight.nearest_f32();
                    let rounded = nearest(weight);
                    line.0[lane] |= u32::from(rounded) << (16 * half);
                    sums.add(weight, widened(rounded));
                }
            }
            *error = sums.relative();
        }
    });
    (matrix, errors)
}

/// `y = x Wᵀ + b` for shapes that fit.
pub(super) fn forward<E: Pooled>(
    x: Matrix<'_, E>,
    w: &Bf16Matrix,
    rows: Range<usize>,
    bias: Option<&[E]>,
    y: Parts<'_, E>,
) {
    if x.rows() >= FEW_ROWS {
        let initial = bias.map_or(Initial::Zero, Initial::OfColumns);
        return multiply_packed(y, initial, x, &Transposed { w, rows });
    }
    let blocks = blocks(x.rows(), [rows.len(), w.cols], SHARE, y);
    for_each(blocks, |(first, y)| {
        run(Product {
            x,
            w,
            bias: bias.map(|bias| &bias[first..][..y.cols()]),
            first: rows.start + first,
            y,
        });
    });
}

/// The transpose of some rows, `[in, out]`.
struct Transposed<'a> {
    w: &'a Bf16Matrix,
    rows: Range<usize>,
}

impl<E: Pooled> Columns<E> for Transposed<'_> {
    const PANELS_OF_A_THREAD: usize = 4;

    fn copy(&self, columns: Range<usize>, depths: Range<usize>, to: MatrixMut<'_, E>) {
        let first = self.rows.start;
        run(Widen {
            from: self.w,
            columns: first + columns.start..first + columns.end,
            depths,
            to,
        });
    }
}

struct Widen<'a, E> {
    from: &'a Bf16Matrix,
    columns: Range<usize>,
    depths: Range<usize>,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Widen<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Range { start, end } = self.columns;
        for panel in start / LANES..end.div_ceil(LANES) {
            let lines = self.from.panel(panel);
            let columns = start.max(panel * LANES)..end.min((panel + 1) * LANES);
            let lanes = columns.start - panel * LANES..columns.end - panel * LANES;
            for (row, depth) in self.depths.clone().enumerate() {
                let to = &mut self.to.row_mut(row)[columns.start - start..columns.end - start];
                let from = &lines[depth / 2].0[lanes.clone()];
                for (to, lane) in to.iter_mut().zip(from) {
                    *to = E::of_f32(halves(*lane)[depth % 2]);
                }
            }
        }
    }
}

/// Few rows with a block of outputs.
struct Product<'a, E> {
    x: Matrix<'a, E>,
    w: &'a Bf16Matrix,
    /// Of the block.
    bias: Option<&'a [E]>,
    /// The row of the weights that the first output of the block is.
    first: usize,
    y: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Product<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let end = self.first + self.y.cols();
        for panel in self.first / LANES..end.div_ceil(LANES) {
            let mut row = 0;
            while row < self.x.rows() {
                match self.x.rows() - row {
                    1 => self.tile::<V, 1>(row, panel),
                    2 => self.tile::<V, 2>(row, panel),
                    3 => self.tile::<V, 3>(row, panel),
                    _ => self.tile::<V, ROWS>(row, panel),
                }
                row += ROWS;
            }
        }
    }
}

impl<E: Real> Product<'_, E> {
    #[inline(always)]
    fn tile<V: Vector<Element = E>, const R: usize>(&mut self, row: usize, panel: usize) {
        let x: [&[E]; R] = array::from_fn(|r| self.x.row(row + r));
        let sums = sums_of_rows::<E, V, R>(x, self.w.panel(panel));
        let first = panel * LANES;
        let outputs = self.first.max(first)..(self.first + self.y.cols()).min(first + LANES);
        let to = outputs.start - self.first..outputs.end - self.first;
        for (r, sums) in sums.iter().enumerate() {
            let y = &mut self.y.row_mut(row + r)[to.clone()];
            y.copy_from_slice(&sums[outputs.start - first..outputs.end - first]);
            if let Some(bias) = self.bias {
                let bias = &bias[to.clone()];
                y.iter_mut().zip(bias).for_each(|(y, bias)| *y += *bias);
            }
        }
    }
}

/// The products of `R` rows with a panel. The vectors of sums stay in registers: nothing but the loops below, which are unrolled, has their places.
#[inline(always)]
#[allow(
    clippy::needless_range_loop,
    reason = "an iterator over the sums would keep them in memory"
)]
fn sums_of_rows<E: Real, V: Vector<Element = E>, const R: usize>(
    x: [&[E]; R],
    lines: &[Line],
) -> [[E; LANES]; R] {
    let mut sums = [[[V::zero(); MOST_VECTORS]; 2]; R];
    let pairs = x.first().map_or(0, |x| x.len() / 2);
    let x_pairs: [&[[E; 2]]; R] = array::from_fn(|r| &x[r].as_chunks().0[..pairs]);
    for (k, line) in lines[..pairs].iter().enumerate() {
        for half in 0..2 {
            for v in 0..LANES / V::LANES {
                let weights = weights_of::<E, V>(line, half, v);
                for r in 0..R {
                    sums[r][half][v] += V::splat(x_pairs[r][k][half]) * weights;
                }
            }
        }
    }
    if let Some(line) = lines.get(pairs) {
        for v in 0..LANES / V::LANES {
            let weights = weights_of::<E, V>(line, 0, v);
            for r in 0..R {
                sums[r][0][v] += V::splat(x[r][2 * pairs]) * weights;
            }
        }
    }
    let mut stored = [[E::ZERO; LANES]; R];
    for r in 0..R {
        for v in 0..LANES / V::LANES {
            let [even, odd] = [sums[r][0][v], sums[r][1][v]];
            (even + odd).store(&mut stored[r][v * V::LANES..][..V::LANES]);
        }
    }
    stored
}

/// Some of the weights of the even column of a line, or of the odd one.
#[inline(always)]
fn weights_of<E: Real, V: Vector<Element = E>>(line: &Line, half: usize, v: usize) -> V {
    let mut weights = [E::ZERO; LANES];
    let lanes = &line.0[v * V::LANES..][..V::LANES];
    for (weight, lane) in weights.iter_mut().zip(lanes) {
        *weight = E::of_f32(halves(*lane)[half]);
    }
    V::load(&weights[..V::LANES])
}
