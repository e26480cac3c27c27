//! Weights in bf16: the upper half of an `f32`, rounded to the nearest. They are multiplied as `f32`, so the rows that are multiplied with them
//! are exact.
//!
//! An output is the sum of two: over the even inputs, and over the odd ones. Each operation is rounded. So a result of few rows has the same bits
//! on every instruction set, for any number of threads.

use std::{array, ops::Range};

use super::blocks;
use crate::kernel::{
    Matrix, MatrixMut, Pooled, Real,
    bf16::{nearest, widened},
    linear_parts::Parts,
    packed::{Columns, multiply_packed},
    parallel::{SMALL, for_each},
};
use crate::simd::{Initial, Kernel, Vector, run};

/// The rows of a matrix that stand in one line.
const LANES: usize = 16;

/// The most vectors that a line has numbers for.
const MOST_VECTORS: usize = 8;

/// With fewer rows than this, the weights are read where they stand. For more, panels of wider numbers are worth it, whose products are fused.
const FEW_ROWS: usize = 16;

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
        let lines = self.panel(row / LANES).iter();
        let pairs = lines.flat_map(move |line| halves(line.0[row % LANES]));
        pairs.take(self.cols)
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
    let [rows, cols] = [w.rows(), w.cols()];
    let each = cols.div_ceil(2);
    let mut lines = vec![Line([0; LANES]); rows.div_ceil(LANES) * each];
    let mut errors = vec![0.0; rows];
    let panels = lines
        .chunks_mut(each.max(1))
        .zip(errors.chunks_mut(LANES))
        .enumerate();
    for_each(panels, |(panel, (lines, errors))| {
        for (lane, error) in errors.iter_mut().enumerate() {
            let row = w.row(panel * LANES + lane);
            let mut sums = super::RowError::default();
            for (pair, line) in row.chunks(2).zip(lines.iter_mut()) {
                for (half, weight) in pair.iter().enumerate() {
                    let weight = super::as_f32(*weight);
                    let rounded = nearest(weight);
                    line.0[lane] |= u32::from(rounded) << (16 * half);
                    sums.add(weight, widened(rounded));
                }
            }
            *error = sums.relative();
        }
    });
    (Bf16Matrix { rows, cols, lines }, errors)
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

/// A number for each lane of a line, in the vectors that it takes.
type Sums<V> = [V; MOST_VECTORS];

impl<E: Real> Product<'_, E> {
    #[inline(always)]
    fn tile<V: Vector<Element = E>, const R: usize>(&mut self, row: usize, panel: usize) {
        let x: [&[E]; R] = array::from_fn(|r| self.x.row(row + r));
        let lines = self.w.panel(panel);
        let pairs = self.w.cols / 2;
        let [mut even, mut odd] = [[[V::zero(); MOST_VECTORS]; R]; 2];
        for (k, line) in lines[..pairs].iter().enumerate() {
            add_products(x.map(|x| x[2 * k]), line, 0, &mut even);
            add_products(x.map(|x| x[2 * k + 1]), line, 1, &mut odd);
        }
        if let Some(line) = lines.get(pairs) {
            add_products(x.map(|x| x[2 * pairs]), line, 0, &mut even);
        }
        let first = panel * LANES;
        let outputs = self.first.max(first)..(self.first + self.y.cols()).min(first + LANES);
        for (r, (even, odd)) in even.iter().zip(&odd).enumerate() {
            let mut sums = [E::ZERO; LANES];
            for (v, to) in sums.chunks_exact_mut(V::LANES).enumerate() {
                (even[v] + odd[v]).store(to);
            }
            let to = outputs.start - self.first..outputs.end - self.first;
            let y = &mut self.y.row_mut(row + r)[to.clone()];
            y.copy_from_slice(&sums[outputs.start - first..outputs.end - first]);
            if let Some(bias) = self.bias {
                let bias = &bias[to];
                y.iter_mut().zip(bias).for_each(|(y, bias)| *y += *bias);
            }
        }
    }
}

/// `sums[r] += x[r] w`, rounded twice.
#[inline(always)]
fn add_products<E: Real, V: Vector<Element = E>, const R: usize>(
    x: [E; R],
    line: &Line,
    half: usize,
    sums: &mut [Sums<V>; R],
) {
    let mut weights = [E::ZERO; LANES];
    for (weight, lane) in weights.iter_mut().zip(&line.0) {
        *weight = E::of_f32(halves(*lane)[half]);
    }
    for (v, weights) in weights.chunks_exact(V::LANES).enumerate() {
        let weights = V::load(weights);
        for r in 0..R {
            sums[r][v] += V::splat(x[r]) * weights;
        }
    }
}
