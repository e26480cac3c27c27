//! Weights in bf16: the upper half of an `f32`, rounded to the nearest. What is multiplied with them is rounded, too.
//!
//! The products are those of [`rounded`](crate::kernel::rounded), whose panels the weights are in. So the results of `f32` have the same bits on every
//! instruction set but AMX, and for any number of threads, and those of a row for any rows beside it.

use std::ops::Range;

use crate::kernel::{
    Matrix, MatrixMut, Pooled, Real,
    linear_parts::Parts,
    packed::Sharing,
    parallel::for_each,
    rounded::{PairColumns, multiply_rounded},
};
use crate::simd::{
    Initial, Pair, PairLine, PairPanels, Panels, least_exponent, panel_columns, widened,
};

/// The most rows of a panel: the columns of one of a product with `f32`. A matrix with fewer has as many as fill its lines.
const PANEL: usize = panel_columns::<f32>();

/// A matrix of weights `[out, in]` in bf16.
#[derive(Debug)]
pub struct Bf16Matrix {
    rows: usize,
    cols: usize,
    /// `[panels, pairs of columns, rows of a panel]`
    lines: Vec<PairLine>,
    /// The least exponent of all weights: the fastest way to multiply them depends on it.
    least_exponent: u32,
}

impl Bf16Matrix {
    /// The pairs of a row.
    fn pairs(&self) -> usize {
        self.cols.div_ceil(2)
    }

    /// The lines of a pair of all rows of a panel.
    fn lines_of_pair(&self) -> usize {
        lines_of_pair(self.rows)
    }

    /// The line and the place in it of a pair of a row.
    fn place(&self, row: usize, pair: usize) -> (usize, usize) {
        let in_panel = row % PANEL / PairLine::PAIRS;
        let line = (row / PANEL * self.pairs() + pair) * self.lines_of_pair() + in_panel;
        (line, row % PairLine::PAIRS)
    }

    fn pair(&self, row: usize, pair: usize) -> Pair {
        let (line, place) = self.place(row, pair);
        self.lines[line].0[place]
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
        let pairs = (0..self.pairs()).map(move |pair| self.pair(row, pair));
        pairs.flat_map(Pair::bits).take(self.cols)
    }

    /// The matrix of these bits, row-major.
    ///
    /// # Panics
    /// If their number is not that of the rows times the columns.
    pub fn of_bits(rows: usize, cols: usize, bits: impl ExactSizeIterator<Item = u16>) -> Self {
        assert_eq!(bits.len(), rows * cols, "a number for each place");
        let mut matrix = Self::zeros(rows, cols);
        for (index, bits) in bits.enumerate() {
            let [row, col] = [index / cols, index % cols];
            let (line, place) = matrix.place(row, col / 2);
            let pair = &mut matrix.lines[line].0[place];
            let mut both = pair.numbers();
            both[col % 2] = widened(bits);
            // No number of a pair is subnormal.
            *pair = Pair::new(both[0], both[1]);
        }
        matrix.find_least_exponent();
        matrix
    }

    fn find_least_exponent(&mut self) {
        self.least_exponent = least_exponent(PairLine::flatten(&self.lines));
    }

    fn zeros(rows: usize, cols: usize) -> Self {
        let zeros = PairLine([Pair::ZERO; PairLine::PAIRS]);
        let lines = rows.div_ceil(PANEL) * cols.div_ceil(2) * lines_of_pair(rows);
        Self {
            rows,
            cols,
            lines: vec![zeros; lines],
            least_exponent: least_exponent(&[]),
        }
    }
}

/// [`Bf16Matrix::lines_of_pair`] with so many rows.
fn lines_of_pair(rows: usize) -> usize {
    rows.min(PANEL).div_ceil(PairLine::PAIRS)
}

/// Rounds a matrix `[out, in]` to bf16, and returns the error of each row, as [for int8](super::int8::quantize).
///
/// # Panics
/// If its rows are not contiguous.
#[track_caller]
pub(super) fn quantize<E: Real>(w: Matrix<'_, E>) -> (Bf16Matrix, Vec<f32>) {
    let mut matrix = Bf16Matrix::zeros(w.rows(), w.cols());
    let mut errors = vec![0.0; w.rows()];
    let lines_of_pair = matrix.lines_of_pair();
    let each = (matrix.pairs() * lines_of_pair).max(1);
    let panels = matrix.lines.chunks_mut(each);
    let panels = panels.zip(errors.chunks_mut(PANEL)).enumerate();
    for_each(panels, |(panel, (lines, errors))| {
        for (at, error) in errors.iter_mut().enumerate() {
            let (first, place) = (at / PairLine::PAIRS, at % PairLine::PAIRS);
            let mut sums = super::RowError::default();
            let pairs = lines.iter_mut().skip(first).step_by(lines_of_pair);
            for (numbers, line) in w.row(panel * PANEL + at).chunks(2).zip(pairs) {
                let mut weights = [0.0; 2];
                for (weight, number) in weights.iter_mut().zip(numbers) {
                    *weight = number.nearest_f32();
                }
                let pair = Pair::new(weights[0], weights[1]);
                for (weight, rounded) in weights.into_iter().zip(pair.numbers()) {
                    sums.add(weight, rounded);
                }
                line.0[place] = pair;
            }
            *error = sums.relative();
        }
    });
    matrix.find_least_exponent();
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
    let initial = bias.map_or(Initial::Zero, Initial::OfColumns);
    multiply_rounded(y, initial, x, &Transposed { w, rows }, &mut []);
}

/// The transpose of some rows, `[in, out]`.
struct Transposed<'a> {
    w: &'a Bf16Matrix,
    rows: Range<usize>,
}

impl<E: Pooled> PairColumns<E> for Transposed<'_> {
    const SHARING: Sharing = Sharing {
        panels_of_a_thread: 1,
        unit: PANEL,
        rows_per_read: super::ROWS_PER_READ,
        ..Sharing::packed::<f32>()
    };

    fn in_place(&self, columns: Range<usize>, depths: Range<usize>) -> Option<PairPanels<'_>> {
        let first = self.rows.start + columns.start;
        let is_whole = first.is_multiple_of(PANEL) && panel_columns::<E>() == PANEL;
        is_whole.then(|| {
            let pairs = PairLine::flatten(&self.w.lines);
            let width = self.w.lines_of_pair() * PairLine::PAIRS;
            let all = Panels::new(pairs, self.w.pairs(), width);
            let pairs = depths.start / 2..depths.end.div_ceil(2);
            let some = all.behind(first / PANEL).depths(pairs);
            PairPanels::with_least_exponent(some, columns.len(), self.w.least_exponent)
        })
    }

    fn pack(&self, columns: Range<usize>, depths: Range<usize>, mut panel: MatrixMut<'_, Pair>) {
        let first = self.rows.start + columns.start;
        let pairs = depths.start / 2..depths.end.div_ceil(2);
        for (to, pair) in pairs.enumerate() {
            let (to, behind) = panel.row_mut(to).split_at_mut(columns.len());
            behind.fill(Pair::ZERO);
            for (at, to) in to.iter_mut().enumerate() {
                *to = self.w.pair(first + at, pair);
            }
        }
    }
}
