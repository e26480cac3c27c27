//! Products with a packed right side: one microkernel for all instruction sets.
//!
//! The numbers of the right side are copied to panels first, in the order in which the microkernel reads them: a panel has
//! [`panel_columns`] columns, and the numbers of a depth stand side by side, `[depth, columns]`. Whoever packs them decides where they come
//! from: a matrix with any strides, or an image whose patches are nowhere a matrix. The rows of the left side are read where they stand, a
//! number at a time.
//!
//! ```text
//! to[i][j] = start + Σ_k rows[i][k] columns[k][j]     for a tile of rows `i` and columns `j`: vectors along `j`, numbers of `i` in every lane
//! ```
//!
//! The sums of a tile stay in registers for the whole depth. Panels have the same sizes for all instruction sets. Those with fewer or
//! shorter registers compute a panel in several tiles.
//!
//! The result may be in pieces, side by side: the columns of a panel need not be neighbours in memory.

use super::slice::{load_any, store_any};
use super::{Kernel, Matrix, MatrixMut, Real, Vector, run};

/// The columns of a panel: three of the widest vectors.
pub const fn panel_columns<E>() -> usize {
    VECTORS * vector_columns::<E>()
}

/// The columns of the widest vector. A panel may have few of them in use, and takes little time then.
pub const fn vector_columns<E>() -> usize {
    64 / size_of::<E>()
}

/// The vectors of a row of a tile.
const VECTORS: usize = 3;

/// The rows of a tile: there are 24 sums, which leaves registers for the factors.
const ROWS: usize = 8;
/// The same with 16 registers, for 12 sums.
const FEW_ROWS: usize = 4;

/// The most lanes of a tile.
const MOST: usize = VECTORS * 16;

/// The panels of the right side of a product: `[panels, depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a, E> {
    numbers: &'a [E],
    depth: usize,
}

impl<'a, E> Panels<'a, E> {
    /// Panels of this depth.
    ///
    /// # Panics
    /// If the last one is not whole.
    #[track_caller]
    pub fn new(numbers: &'a [E], depth: usize) -> Self {
        let width = panel_columns::<E>();
        let panel = width * depth;
        assert!(
            panel == 0 || numbers.len().is_multiple_of(panel),
            "{} numbers in panels of {depth} x {width}",
            numbers.len()
        );
        Self { numbers, depth }
    }

    fn panel(&self, index: usize) -> &'a [E] {
        let panel = self.depth * panel_columns::<E>();
        &self.numbers[index * panel..][..panel]
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
/// If there are too few panels, pieces have other numbers of rows, or the elements of a row are not contiguous.
#[track_caller]
pub fn multiply_panels<E: Real>(
    to: &mut [MatrixMut<'_, E>],
    initial: Initial<'_, E>,
    rows: Matrix<'_, E>,
    columns: Panels<'_, E>,
) {
    let count = rows.rows();
    let all = to.iter().map(MatrixMut::cols).sum();
    assert!(
        to.iter().all(|to| to.rows() == count)
            && rows.has_row_slices()
            && rows.cols() == columns.depth,
        "{count} rows of {} and panels of a depth of {} for {to:?}",
        rows.cols(),
        columns.depth
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
        all,
    });
}

struct Product<'a, 'b, E> {
    to: &'a mut [MatrixMut<'b, E>],
    initial: Initial<'a, E>,
    rows: Matrix<'a, E>,
    columns: Panels<'a, E>,
    /// The number of columns.
    all: usize,
}

impl<E: Real> Kernel for Product<'_, '_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        // The instruction sets with vectors of 32 bytes have 16 registers, the others 32.
        match size_of::<V>() {
            32 => self.tiles::<V, FEW_ROWS>(),
            _ => self.tiles::<V, ROWS>(),
        }
    }
}

impl<E: Real> Product<'_, '_, E> {
    /// All tiles, of `R` rows each. All of some rows are computed before others are read.
    #[inline(always)]
    fn tiles<V: Vector<Element = E>, const R: usize>(&mut self) {
        let width = panel_columns::<E>();
        let step = VECTORS * V::LANES;
        let count = self.rows.rows();
        for first in (0..count).step_by(ROWS) {
            for (panel, left) in (0..self.all).step_by(width).enumerate() {
                let b = self.columns.panel(panel);
                let columns = width.min(self.all - left);
                for col in (0..columns).step_by(step) {
                    let columns = step.min(columns - col);
                    for row in (first..count.min(first + ROWS)).step_by(R) {
                        // The last tile has its last row several times.
                        let mut a = [self.rows.row(count - 1); R];
                        for (a, row) in a.iter_mut().zip(row..count) {
                            *a = self.rows.row(row);
                        }
                        let sums = match columns.div_ceil(V::LANES) {
                            1 => tile::<V, R, 1>(a, b, col),
                            2 => tile::<V, R, 2>(a, b, col),
                            _ => tile::<V, R, VECTORS>(a, b, col),
                        };
                        let rows = R.min(count - row);
                        self.write::<V>(&sums[..rows], row, left + col, columns);
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

/// The sums of `R` rows, and of `N` vectors of columns from `col` on.
#[inline(always)]
fn tile<V: Vector, const R: usize, const N: usize>(
    a: [&[V::Element]; R],
    b: &[V::Element],
    col: usize,
) -> [[V::Element; MOST]; R] {
    let width = panel_columns::<V::Element>();
    let depth = a[0].len();
    assert!(
        a.iter().all(|a| a.len() == depth)
            && b.len() == depth * width
            && col + N * V::LANES <= width,
        "a tile within its rows and its panel"
    );
    let mut sums = [[V::zero(); N]; R];
    for k in 0..depth {
        // SAFETY: `k` is less than the depth. So each row has a number `k`, and `width` numbers of `b` stand from `k * width` on, and the tile
        // is within these.
        let (a, b) = unsafe {
            (
                a.map(|a| *a.get_unchecked(k)),
                b.get_unchecked(k * width + col..k * width + col + N * V::LANES),
            )
        };
        let b: [V; N] = std::array::from_fn(|i| V::load(&b[i * V::LANES..]));
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = V::splat(a);
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
