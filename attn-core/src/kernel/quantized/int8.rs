//! Weights in int8, symmetric, with a scale for each row: `w ≈ scale q`, with `q` in -127..=127.
//!
//! Dettmers et al., "LLM.int8(): 8-bit matrix multiplication for transformers at scale" (2022), without its outliers: the rows that are multiplied
//! with the weights are rounded to 16 bits, `x ≈ scale n`, so that they lose nothing that matters:
//!
//! ```text
//! y[o] = scale_x scale_w[o] Σ_k n[k] q[o][k] + bias[o]
//! ```
//!
//! The sums are exact. So a result has the same bits on every instruction set, for any number of threads, and for any number of rows beside it.
//!
//! The weights stand as `q + 128`, in [lines](ByteLine) of 16 rows of the matrix, and `128 Σ_k n[k]` is subtracted behind the product.

use std::{cell::Cell, mem, ops::Range};

use smallvec::SmallVec;

use super::{BLOCK, ROWS_PER_READ, RowError};
use crate::kernel::{
    Matrix, MatrixMut, Real,
    linear_parts::Parts,
    parallel::{SMALL, for_each, threads},
};
use crate::memory;
use crate::simd::{
    BYTE_COLUMNS, BYTE_DEPTHS, BYTE_TILE_ROWS, ByteLine, BytePanels, ByteRows, Kernel,
    MOST_BYTE_DEPTHS, RowBytes, RowForm, Vector, has_byte_tiles, multiply_bytes, prefetch, run,
};

/// The largest `q`.
const LARGEST: f32 = 127.0;

/// `q + OFFSET` is a byte without a sign.
const OFFSET: i32 = 128;

/// The largest number of a row that is rounded to 16 bits. The higher of two signed bytes is 127 at most.
const LARGEST_OF_ROW: f32 = 127.0 * 256.0 + 127.0;

/// The bits that a scale has less than an `f32`.
const BITS_LESS: u32 = 7;

/// The multiplications that are worth a thread.
const SHARE: usize = 64 * SMALL;

/// The panels that are multiplied at a time.
const PANELS: usize = 4;

/// The rows that are multiplied at a time. Their sums fill the registers: those of all panels with AVX-512, of one with AVX2.
const ROWS: usize = 3;

/// With so many rows for each thread, these share the rows: reading the weights takes less time than the products with them, and each thread rounds what
/// it multiplies alone.
const MANY_ROWS: usize = 32;

/// The bytes of the rounded rows of a block, for which the cache of a core has room.
const BYTES_OF_BLOCK: usize = 192 * 1024;

/// A matrix of weights `[out, in]` in int8.
#[derive(Debug)]
pub struct Int8Matrix {
    rows: usize,
    cols: usize,
    /// Panels of 16 rows, each with all columns.
    lines: Vec<ByteLine>,
    /// A scale for each row of whole panels: 0 behind the last row.
    scales: Vec<f32>,
}

impl Int8Matrix {
    /// Whether a matrix with so many columns can be in int8: the sums are integers of 32 bits.
    pub fn fits(cols: usize) -> bool {
        cols <= MOST_BYTE_DEPTHS
    }

    /// The lines of a panel.
    fn lines_of_panel(&self) -> usize {
        self.cols.div_ceil(BYTE_DEPTHS)
    }

    /// Some of the panels.
    #[inline(always)]
    fn panels(&self, panels: Range<usize>) -> BytePanels<'_> {
        let each = self.lines_of_panel();
        BytePanels {
            lines: &self.lines[panels.start * each..panels.end * each],
            scales: &self.scales.as_chunks().0[panels],
        }
    }

    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.lines[..]) + size_of_val(&self.scales[..])
    }

    /// The number of rows, and of columns.
    pub fn extents(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// The weights of a row, `scale q`: exact in `f32`.
    pub fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        let scale = self.scales[row];
        self.integers(row).map(move |q| scale * f32::from(q))
    }

    /// The `q` of a row.
    pub fn integers(&self, row: usize) -> impl Iterator<Item = i8> {
        let lane = row % BYTE_COLUMNS;
        let panel = row / BYTE_COLUMNS;
        let lines = self.panels(panel..panel + 1).lines.iter();
        let bytes = lines.flat_map(move |line| line.0[lane]).take(self.cols);
        bytes.map(|byte| (i32::from(byte) - OFFSET) as i8)
    }

    /// The scale of each row.
    pub fn scales(&self) -> &[f32] {
        &self.scales[..self.rows]
    }

    /// The matrix of these scales and `q`, row-major.
    ///
    /// # Panics
    /// If the number of the `q` is not that of the rows times the columns, or the rows are [too long](Self::fits).
    pub fn of_integers(cols: usize, scales: Vec<f32>, integers: &[i8]) -> Self {
        let mut matrix = Self::zeros(scales.len(), cols);
        assert_eq!(integers.len(), scales.len() * cols, "a scale for each row");
        let each = matrix.lines_of_panel();
        let rows = integers.chunks(cols.max(1)).enumerate();
        for (row, integers) in rows {
            let lines = &mut matrix.lines[row / BYTE_COLUMNS * each..][..each];
            for (line, some) in lines.iter_mut().zip(integers.chunks(BYTE_DEPTHS)) {
                for (byte, q) in line.0[row % BYTE_COLUMNS].iter_mut().zip(some) {
                    *byte = (i32::from(*q) + OFFSET) as u8;
                }
            }
        }
        matrix.scales[..scales.len()].copy_from_slice(&scales);
        matrix
    }

    #[track_caller]
    fn zeros(rows: usize, cols: usize) -> Self {
        assert!(
            Self::fits(cols),
            "rows of at most {MOST_BYTE_DEPTHS} numbers, not {cols}"
        );
        let panels = rows.div_ceil(BYTE_COLUMNS);
        let lines = panels * cols.div_ceil(BYTE_DEPTHS);
        Self {
            rows,
            cols,
            lines: vec![ByteLine([[OFFSET as u8; BYTE_DEPTHS]; BYTE_COLUMNS]); lines],
            scales: vec![0.0; panels * BYTE_COLUMNS],
        }
    }
}

/// A scale for numbers up to this one. It has 17 bits, so that its product with `q` is exact, and the scale of such products is the
/// same again. That of a row that is not finite is NaN, and that of numbers that are almost subnormal 0.
fn scale_of(largest: f32) -> f32 {
    let scale = largest / LARGEST;
    if !scale.is_finite() {
        return f32::NAN;
    }
    if !scale.is_normal() {
        return 0.0;
    }
    let last = 1_u32 << BITS_LESS;
    f32::from_bits((scale.to_bits() + (last - 1)) & !(last - 1))
}

/// The largest absolute value, infinity or NaN if one is that.
#[inline(always)]
fn largest<E: Real>(x: &[E]) -> f32 {
    let bits = x.iter().map(|x| x.nearest_f32().abs().to_bits());
    // The order of positive numbers is that of their bits, with NaN at the end.
    f32::from_bits(bits.fold(0, u32::max))
}

/// Rounds a matrix `[out, in]` to int8, and returns the error of each row: `‖w - scale q‖ / ‖w‖`.
///
/// # Panics
/// If its rows are not contiguous, or [too long](Int8Matrix::fits).
#[track_caller]
pub(super) fn quantize<E: Real>(w: Matrix<'_, E>) -> (Int8Matrix, Vec<f32>) {
    let mut matrix = Int8Matrix::zeros(w.rows(), w.cols());
    let mut errors = vec![0.0; w.rows()];
    let each = matrix.lines_of_panel().max(1);
    let scales = matrix.scales.chunks_mut(BYTE_COLUMNS);
    let of_rows = scales.zip(errors.chunks_mut(BYTE_COLUMNS));
    let panels = matrix.lines.chunks_mut(each).zip(of_rows).enumerate();
    for_each(panels, |(panel, (lines, (scales, errors)))| {
        for (lane, (scale, error)) in scales.iter_mut().zip(errors).enumerate() {
            let row = w.row(panel * BYTE_COLUMNS + lane);
            *scale = scale_of(largest(row));
            *error = quantize_row(row, *scale, lane, lines);
        }
    });
    (matrix, errors)
}

/// `y = x Wᵀ + b` for shapes that fit.
pub(super) fn forward<E: Real>(
    x: Matrix<'_, E>,
    w: &Int8Matrix,
    rows: Range<usize>,
    bias: Option<&[E]>,
    y: Parts<'_, E>,
) {
    for_each(blocks([x.rows(), rows.len(), w.cols], y), |block| {
        let mut rounded = RoundedRows::take();
        rounded.round(x.some_rows(block.rows));
        for (first, y) in block.parts {
            run(Product {
                x: &rounded,
                w,
                bias: bias.map(|bias| &bias[first..][..y.cols()]),
                first: rows.start + first,
                y,
            });
        }
        rounded.give_back();
    });
}

/// The rows and columns of a product that a thread computes at a time.
struct Block<'y, E> {
    /// The rows of the inputs.
    rows: Range<usize>,
    /// Their results in some columns of each part, with the first of these among those of all parts.
    parts: SmallVec<[(usize, MatrixMut<'y, E>); 4]>,
}

/// Blocks for the threads: of rows, as far as there are many, and of columns. No sum depends on the division.
fn blocks<'y, E: Real>(
    [rows, outputs, inputs]: [usize; 3],
    mut y: Parts<'y, E>,
) -> impl Iterator<Item = Block<'y, E>> {
    let width = outputs / y.len().max(1);
    let work = outputs * inputs * rows.max(ROWS_PER_READ);
    let threads = (work / SHARE).clamp(1, threads());
    let shares = (rows / MANY_ROWS).clamp(1, threads);
    let of_block = (BYTES_OF_BLOCK / (2 * inputs).max(1)).max(MANY_ROWS);
    let of_rows = shares * rows.div_ceil(shares * of_block).max(1);
    let of_columns = threads.div_ceil(shares);
    let each = width.div_ceil(of_columns).max(1).next_multiple_of(BLOCK);
    let tile = tile_rows();
    let tiles = rows.div_ceil(tile);
    let bound = move |block: usize| rows.min(block * tiles / of_rows * tile);
    (0..of_rows).flat_map(move |block| {
        let rows = bound(block)..bound(block + 1);
        let parts = y.iter_mut().map(|y| {
            let (these, others) = mem::replace(y, MatrixMut::empty()).split_rows(rows.len());
            *y = others;
            these.col_chunks(each)
        });
        let mut parts: SmallVec<[_; 4]> = parts.collect();
        (0..width).step_by(each).map(move |first| {
            let columns = parts.iter_mut().filter_map(Iterator::next).enumerate();
            Block {
                rows: rows.clone(),
                parts: columns.map(|(part, y)| (part * width + first, y)).collect(),
            }
        })
    })
}

/// The most rows of a tile. The rows of a block are a multiple of them, but for the last ones.
fn tile_rows() -> usize {
    match has_byte_tiles() {
        true => BYTE_TILE_ROWS,
        false => ROWS,
    }
}

/// Writes a row to a lane of a panel, and returns its error.
fn quantize_row<E: Real>(row: &[E], scale: f32, lane: usize, lines: &mut [ByteLine]) -> f32 {
    let mut sums = RowError::default();
    for (weights, line) in row.chunks(BYTE_DEPTHS).zip(lines) {
        for (weight, byte) in weights.iter().zip(&mut line.0[lane]) {
            let weight = weight.nearest_f32();
            let q = match scale > 0.0 {
                true => (weight / scale).round_ties_even(),
                false => 0.0,
            };
            *byte = (q as i32 + OFFSET) as u8;
            sums.add(weight, scale * q);
        }
    }
    sums.relative()
}

/// Rows that are rounded to 16 bits.
#[derive(Debug, Default)]
struct RoundedRows {
    rows: usize,
    /// The number of `RowBytes` of a row.
    len: usize,
    /// `[rows, len]`. Behind them is memory of earlier rows.
    bytes: Vec<RowBytes>,
    form: RowForm,
    /// `[rows]`
    scales: Vec<f32>,
    /// `[rows]`: what is added to products with the bytes of weights. It subtracts what [`OFFSET`] adds.
    initial: Vec<f64>,
}

thread_local! {
    /// The memory of the last product on this thread.
    static SPARE: Cell<RoundedRows> = Cell::default();
}

impl RoundedRows {
    fn take() -> Self {
        SPARE.take()
    }

    /// Keeps the memory for the next product on this thread, unless free memory is limited.
    fn give_back(self) {
        if memory::max_idle_bytes() == usize::MAX {
            SPARE.set(self);
        }
    }

    fn round<E: Real>(&mut self, x: Matrix<'_, E>) {
        self.rows = x.rows();
        self.len = 2 * x.cols().div_ceil(BYTE_DEPTHS);
        self.form = RowForm::current();
        let bytes = self.rows * self.len;
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, [0; _]);
        }
        self.scales.clear();
        self.initial.clear();
        for row in 0..x.rows() {
            let to = &mut self.bytes[row * self.len..][..self.len];
            let row = x.row(row);
            let (scale, sum) = run(RoundRow {
                row,
                to,
                form: self.form,
            });
            self.scales.push(scale);
            self.initial.push(-f64::from(OFFSET) * f64::from(sum));
        }
    }

    /// Some of the rows.
    #[inline(always)]
    fn some(&self, rows: Range<usize>) -> ByteRows<'_> {
        ByteRows {
            bytes: &self.bytes[rows.start * self.len..rows.end * self.len],
            form: self.form,
            initial: &self.initial[rows.clone()],
            scales: &self.scales[rows],
        }
    }
}

/// Rounds a row. Returns its scale and the sum of its numbers, which fits into 32 bits, as there are at most [`MOST_BYTE_DEPTHS`].
struct RoundRow<'a, E> {
    row: &'a [E],
    to: &'a mut [RowBytes],
    form: RowForm,
}

impl<E: Real> Kernel for RoundRow<'_, E> {
    type Element = E;
    type Output = (f32, i32);

    /// Plain loops, which the compiler vectorises. Nothing wraps in them: with a check for that, they would not be vectorised.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> (f32, i32) {
        let scale = largest(self.row) / LARGEST_OF_ROW;
        if !scale.is_normal() {
            self.to.fill([0; _]);
            let scale = if scale.is_finite() { 0.0 } else { f32::NAN };
            return (scale, 0);
        }
        let inverse = 1.0 / scale;
        let count = self.row.len();
        let mut sum = 0_i32;
        match self.form {
            RowForm::Apart => {
                let half = self.to.len() / 2;
                let (high, low) = self.to.split_at_mut(half);
                let [high, low] = [high, low].map(<[RowBytes]>::as_flattened_mut);
                high[count..].fill(0);
                low[count..].fill(0);
                for ((x, high), low) in self.row.iter().zip(high).zip(low) {
                    let number = rounded(*x, inverse);
                    // The high byte is rounded to the nearest, so that the low one is in -128..=127.
                    let upper = number.wrapping_add(128) >> 8;
                    *high = upper as i8;
                    *low = number.wrapping_sub(upper << 8) as i8;
                    sum = sum.wrapping_add(number);
                }
            }
            RowForm::Whole => {
                let to = self.to.as_flattened_mut().as_chunks_mut::<2>().0;
                to[count..].fill([0; _]);
                for (x, to) in self.row.iter().zip(to) {
                    let number = rounded(*x, inverse);
                    let [first, second] = (number as i16).to_ne_bytes();
                    *to = [first as i8, second as i8];
                    sum = sum.wrapping_add(number);
                }
            }
        }
        (scale, sum)
    }
}

/// The integer next to `x inverse`, and the even one of two, which has at most 16 bits.
#[inline(always)]
fn rounded<E: Real>(x: E, inverse: f32) -> i32 {
    // A sum with it is rounded to an integer, which is the difference of the bits.
    const SHIFT: f32 = 1.5 * (1 << 23) as f32;
    let shifted = x.nearest_f32() * inverse + SHIFT;
    shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32
}

/// All rows with a block of outputs.
struct Product<'a, 'y, E> {
    x: &'a RoundedRows,
    w: &'a Int8Matrix,
    /// Of the block.
    bias: Option<&'a [E]>,
    /// The row of the weights that the first output of the block is.
    first: usize,
    y: MatrixMut<'y, E>,
}

impl<E: Real> Kernel for Product<'_, '_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let end = self.first + self.y.cols();
        let panels = self.first / BYTE_COLUMNS..end.div_ceil(BYTE_COLUMNS);
        let mut panel = panels.start;
        while panel < panels.end {
            match panels.end - panel {
                PANELS.. => {
                    self.all_rows::<PANELS>(panel);
                    panel += PANELS;
                }
                _ => {
                    self.all_rows::<1>(panel);
                    panel += 1;
                }
            }
        }
    }
}

impl<E: Real> Product<'_, '_, E> {
    /// All rows with `C` panels.
    #[inline(always)]
    fn all_rows<const C: usize>(&mut self, panel: usize) {
        let tiles = match has_byte_tiles() {
            true => self.x.rows / BYTE_TILE_ROWS,
            false => 0,
        };
        for tile in 0..tiles {
            self.tile::<BYTE_TILE_ROWS, C>(tile * BYTE_TILE_ROWS, panel);
        }
        let mut row = tiles * BYTE_TILE_ROWS;
        while row < self.x.rows {
            match self.x.rows - row {
                1 => self.tile::<1, C>(row, panel),
                2 => self.tile::<2, C>(row, panel),
                _ => self.tile::<ROWS, C>(row, panel),
            }
            row += ROWS;
        }
    }

    /// `R` rows with `C` panels.
    #[inline(always)]
    fn tile<const R: usize, const C: usize>(&mut self, row: usize, panel: usize) {
        let columns = panel * BYTE_COLUMNS..(panel + C) * BYTE_COLUMNS;
        let first = columns.start.max(self.first);
        let outputs = first - self.first..self.y.cols().min(columns.end - self.first);
        // The memory of the results is in a cache when the products are ready.
        (row..row + R).for_each(|row| prefetch(&self.y.row(row)[outputs.clone()]));
        let mut products = [[[0.0; BYTE_COLUMNS]; C]; R];
        let (x, w) = (self.x.some(row..row + R), self.w.panels(panel..panel + C));
        multiply_bytes(x, w, &mut products);
        let bias = self.bias.map(|bias| &bias[outputs.clone()]);
        for (row, products) in (row..).zip(&products) {
            let y = &mut self.y.row_mut(row)[outputs.clone()];
            let numbers = &products.as_flattened()[first - columns.start..];
            // Plain loops, which the compiler vectorises.
            let y = y.iter_mut().zip(numbers);
            match bias {
                Some(bias) => y
                    .zip(bias)
                    .for_each(|((y, number), bias)| *y = E::of_f32(*number) + *bias),
                None => y.for_each(|(y, number)| *y = E::of_f32(*number)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every result is in one block, with its row and its column, however many threads there are.
    #[test]
    fn blocks_are_all_results() {
        for threads in [1, 2, 3, 64] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| {
                for rows in [0, 1, 31, 64, 97, 400] {
                    for (parts, width) in [(1, 0), (1, 1), (3, 64), (3, 130)] {
                        for inputs in [0, 1, 500, 6000] {
                            assert_all(rows, [parts, width], inputs);
                        }
                    }
                }
            });
        }
    }

    fn assert_all(rows: usize, [parts, width]: [usize; 2], inputs: usize) {
        let mut y = vec![vec![0.0_f32; rows * width]; parts];
        let all = y.iter_mut().map(|y| MatrixMut::new(y, rows, width));
        let mut most = 0;
        for block in blocks([rows, parts * width, inputs], all.collect()) {
            most = most.max(block.rows.len());
            for (first, mut y) in block.parts {
                assert_eq!(y.rows(), block.rows.len());
                assert!(block.rows.start.is_multiple_of(tile_rows()));
                for row in 0..y.rows() {
                    for (col, y) in y.row_mut(row).iter_mut().enumerate() {
                        *y += ((block.rows.start + row) * parts * width + first + col) as f32 + 1.0;
                    }
                }
            }
        }
        let of_block = (BYTES_OF_BLOCK / (2 * inputs).max(1)).max(MANY_ROWS);
        assert!(
            most < of_block + tile_rows(),
            "{most} rows of {inputs} in a block"
        );
        for (part, y) in y.iter().enumerate() {
            for (at, y) in y.iter().enumerate() {
                let [row, col] = [at / width, part * width + at % width];
                let what = format!("{rows} x {parts} x {width}, {inputs} inputs: {row}, {col}");
                assert_eq!(*y, (row * parts * width + col) as f32 + 1.0, "{what}");
            }
        }
    }
}
