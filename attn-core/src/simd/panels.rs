//! Products of packed matrices: one microkernel for all instruction sets.
//!
//! A product reads each number of its sides many times. So both are copied to panels first, in the order in which the microkernel reads
//! them: a panel of the left side has [`PANEL_ROWS`] rows, one of the right side [`panel_columns`] columns, and the numbers of a depth stand
//! side by side, `[depth, rows]` and `[depth, columns]`. Whoever packs a side decides where its numbers come from: a matrix with any
//! strides, or an image whose patches are nowhere a matrix.
//!
//! ```text
//! to[i][j] = start + Σ_k rows[k][i] columns[k][j]     for a tile of rows `i` and columns `j`: vectors along `j`, numbers of `i` in every lane
//! ```
//!
//! The sums of a tile stay in registers for the whole depth. Panels have the same sizes for all instruction sets. Those with fewer or
//! shorter registers compute a pair of panels in several tiles.
//!
//! The result may be in pieces, side by side: the columns of a panel need not be neighbours in memory.

use std::ops::Range;

use super::slice::{load_any, store_any};
use super::{Kernel, MatrixMut, Real, Vector, run};

/// The rows of a panel of the left side.
pub const PANEL_ROWS: usize = 8;

/// The columns of a panel of the right side: three of the widest vectors.
pub const fn panel_columns<E>() -> usize {
    VECTORS * 64 / size_of::<E>()
}

/// The vectors of a row of a tile. With 8 rows there are 24 sums, which leaves registers for the factors.
const VECTORS: usize = 3;

/// The most lanes of a tile.
const MOST: usize = VECTORS * 16;

/// The panels of one side of a product: `[panels, depth, width]`.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a, E> {
    numbers: &'a [E],
    width: usize,
    depth: usize,
    /// The depths that are read.
    some: (usize, usize),
}

impl<'a, E> Panels<'a, E> {
    /// Panels of so many rows or columns.
    ///
    /// # Panics
    /// If the last one is not whole.
    #[track_caller]
    pub fn new(numbers: &'a [E], width: usize, depth: usize) -> Self {
        let panel = width * depth;
        assert!(
            panel == 0 || numbers.len().is_multiple_of(panel),
            "{} numbers in panels of {width} x {depth}",
            numbers.len()
        );
        Self {
            numbers,
            width,
            depth,
            some: (0, depth),
        }
    }

    /// A range of the depths.
    ///
    /// # Panics
    /// If the panels have fewer.
    #[must_use]
    #[track_caller]
    pub fn some_depths(self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.depth,
            "depths {range:?} of {}",
            self.depth
        );
        let some = (range.start, range.end);
        Self { some, ..self }
    }

    fn depth(&self) -> usize {
        self.some.1 - self.some.0
    }

    fn panel(&self, index: usize) -> &'a [E] {
        let panel = &self.numbers[index * self.depth * self.width..][..self.depth * self.width];
        &panel[self.some.0 * self.width..self.some.1 * self.width]
    }
}

/// The numbers to which the sums of a product are added.
#[derive(Clone, Copy, Debug)]
pub enum Initial<'a, E> {
    /// None: the old numbers are overwritten, and never read.
    Zero,
    /// The old ones.
    Old,
    /// A number for each row.
    OfRows(&'a [E]),
    /// A number for each column.
    OfColumns(&'a [E]),
}

/// `to = initial + rows columns`, on the calling thread, where `to` is a matrix in pieces that stand side by side, of so many rows and with at least
/// one column.
///
/// An element is the sum of the products of its row and its column in the order of the depth. It depends on these, on `initial` and on the
/// instruction set only.
///
/// # Panics
/// If there are too few panels, or pieces have other numbers of rows.
#[track_caller]
pub fn multiply_panels<E: Real>(
    to: &mut [MatrixMut<'_, E>],
    initial: Initial<'_, E>,
    rows: Panels<'_, E>,
    columns: Panels<'_, E>,
) {
    let count = to.first().map_or(0, MatrixMut::rows);
    let all = to.iter().map(MatrixMut::cols).sum();
    assert!(
        to.iter().all(|to| to.rows() == count)
            && rows.width == PANEL_ROWS
            && columns.width == panel_columns::<E>()
            && rows.depth() == columns.depth(),
        "panels of {} x {} and {} x {} for {to:?}",
        rows.width,
        rows.depth(),
        columns.width,
        columns.depth()
    );
    match initial {
        Initial::OfRows(x) => assert_eq!(x.len(), count, "a number for each row"),
        Initial::OfColumns(x) => assert_eq!(x.len(), all, "a number for each column"),
        Initial::Zero | Initial::Old => {}
    }
    run(Product {
        to,
        initial,
        rows,
        columns,
        count,
        all,
    });
}

struct Product<'a, 'b, E> {
    to: &'a mut [MatrixMut<'b, E>],
    initial: Initial<'a, E>,
    rows: Panels<'a, E>,
    columns: Panels<'a, E>,
    /// The numbers of rows and columns.
    count: usize,
    all: usize,
}

impl<E: Real> Kernel for Product<'_, '_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        // The instruction sets with vectors of 32 bytes have 16 registers, the others 32.
        match size_of::<V>() {
            32 => self.tiles::<V, 4>(),
            _ => self.tiles::<V, PANEL_ROWS>(),
        }
    }
}

impl<E: Real> Product<'_, '_, E> {
    /// All tiles, of `R` rows each.
    #[inline(always)]
    fn tiles<V: Vector<Element = E>, const R: usize>(&mut self) {
        let width = self.columns.width;
        let step = VECTORS * V::LANES;
        for (panel, first) in (0..self.count).step_by(PANEL_ROWS).enumerate() {
            let a = self.rows.panel(panel);
            for (panel, left) in (0..self.all).step_by(width).enumerate() {
                let b = self.columns.panel(panel);
                let rows = PANEL_ROWS.min(self.count - first);
                let columns = width.min(self.all - left);
                for col in (0..columns).step_by(step) {
                    let columns = step.min(columns - col);
                    for row in (0..rows).step_by(R) {
                        let sums = match columns.div_ceil(V::LANES) {
                            1 => tile::<V, R, 1>(a, row, b, col, width),
                            2 => tile::<V, R, 2>(a, row, b, col, width),
                            _ => tile::<V, R, VECTORS>(a, row, b, col, width),
                        };
                        let rows = R.min(rows - row);
                        self.write::<V>(&sums[..rows], first + row, left + col, columns);
                    }
                }
            }
        }
    }

    /// Writes the sums of a tile.
    #[inline(always)]
    fn write<V: Vector<Element = E>>(
        &mut self,
        sums: &[[E; MOST]],
        first: usize,
        left: usize,
        columns: usize,
    ) {
        let mut start = 0;
        for piece in &mut *self.to {
            let end = start + piece.cols();
            let some = left.max(start)..(left + columns).min(end);
            if !some.is_empty() {
                for (row, sums) in (first..).zip(sums) {
                    let to = &mut piece.row_mut(row)[some.start - start..some.end - start];
                    let sums = &sums[some.start - left..some.end - left];
                    for at in (0..to.len()).step_by(V::LANES) {
                        let to = &mut to[at..];
                        let sum = load_any::<V>(&sums[at..]);
                        let sum = match self.initial {
                            Initial::Zero => sum,
                            Initial::Old => load_any::<V>(to) + sum,
                            Initial::OfRows(of) => V::splat(of[row]) + sum,
                            Initial::OfColumns(of) => {
                                load_any::<V>(&of[some.start + at..some.end]) + sum
                            }
                        };
                        store_any(sum, to);
                    }
                }
            }
            start = end;
        }
    }
}

/// The sums of `R` rows from `row` on, and of `N` vectors of columns from `col` on.
#[inline(always)]
fn tile<V: Vector, const R: usize, const N: usize>(
    a: &[V::Element],
    row: usize,
    b: &[V::Element],
    col: usize,
    width: usize,
) -> [[V::Element; MOST]; R] {
    let depth = a.len() / PANEL_ROWS;
    assert!(
        b.len() == depth * width && row + R <= PANEL_ROWS && col + N * V::LANES <= width,
        "a tile within its panels"
    );
    let mut sums = [[V::zero(); N]; R];
    for k in 0..depth {
        // SAFETY: `k` is less than the depth. So `PANEL_ROWS` numbers of `a` stand from `k * PANEL_ROWS` on and `width` numbers of `b` from
        // `k * width` on, and the tile is within these.
        let (a, b) = unsafe {
            (
                a.get_unchecked(k * PANEL_ROWS + row..k * PANEL_ROWS + row + R),
                b.get_unchecked(k * width + col..k * width + col + N * V::LANES),
            )
        };
        let b: [V; N] = std::array::from_fn(|i| V::load(&b[i * V::LANES..]));
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = V::splat(*a);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = a.mul_add(b, *sum);
            }
        }
    }
    let mut numbers = [[V::Element::ZERO; MOST]; R];
    for (to, sums) in numbers.iter_mut().zip(sums) {
        for (to, sum) in to.chunks_exact_mut(V::LANES).zip(sums) {
            sum.store(to);
        }
    }
    numbers
}
