//! Products with a packed right side: one microkernel for all instruction sets.
//!
//! The numbers of the right side stand in [panels](super::panels). The rows of the left side are read where they stand, a number at a time: they may
//! have any strides.
//!
//! ```text
//! to[i][j] = start + Σ_k rows[i][k] columns[k][j]     for a tile of rows `i` and columns `j`: vectors along `j`, numbers of `i` in every lane
//! ```
//!
//! The sums of a tile stay in registers for the whole depth. Instruction sets with fewer or shorter registers have tiles of fewer columns
//! ([`tile_columns`]), and compute a wider panel in several of them. They read both sides more often, so that it is worth more to them that numbers
//! are near each other: panels as narrow as a tile, and rows whose numbers are contiguous.
//!
//! The result may be in pieces, side by side: the columns of a panel need not be neighbours in memory.

mod depths;
mod write;

use std::{marker::PhantomData, ops::Range};

use super::panels::Panel;
use super::prefetch::{Ahead, LINE, prefetch_line};
use super::{Kernel, Matrix, MatrixMut, Panels, Real, Vector, WriteMode, run};
use depths::{Prefetch, sums};
pub(super) use write::Place;

/// The most rows of a tile. Fewer have tiles of 2 or 4.
pub const TILE_ROWS: usize = 6;

/// The vectors of a row of a tile: with 24 sums, 32 registers have room for the factors.
const VECTORS: usize = 4;
/// The same with 16 registers, for 12 sums.
const FEW_VECTORS: usize = 2;

/// The vectors of a row of a tile. The instruction sets with vectors of 32 bytes have 16 registers, the others 32.
const fn vectors_of_tile<V>() -> usize {
    match size_of::<V>() {
        32 => FEW_VECTORS,
        _ => VECTORS,
    }
}

/// The tiles of a block of rows, if the first-level cache has room for the columns of a tile.
const TILES_OF_BLOCK: usize = 8;

/// The columns of a tile of the instruction set in use.
pub fn tile_columns<E: Real>() -> usize {
    struct Count<E>(PhantomData<E>);

    impl<E: Real> Kernel for Count<E> {
        type Element = E;
        type Output = usize;

        #[inline(always)]
        fn run<V: Vector<Element = E>>(self) -> usize {
            vectors_of_tile::<V>() * V::LANES
        }
    }

    run(Count(PhantomData::<E>))
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

impl<E> From<WriteMode> for Initial<'_, E> {
    fn from(into: WriteMode) -> Self {
        match into {
            WriteMode::Overwrite => Self::Zero,
            WriteMode::Add => Self::Old,
        }
    }
}

impl<E> Initial<'_, E> {
    /// The numbers of some rows and columns.
    #[must_use]
    pub fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        match self {
            Self::OfRows(of) => Self::OfRows(&of[rows]),
            Self::OfColumns(of) => Self::OfColumns(&of[columns]),
            same => same,
        }
    }
}

/// `to = initial + rows columns`, on the calling thread, where `to` is a matrix in pieces that stand side by side.
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
    rows: Matrix<'_, E>,
    columns: Panels<'_, E>,
) {
    run(Product::new(to, initial, rows, columns));
}

/// How the numbers of both sides are multiplied, and added to sums.
pub(super) trait Factors<V: Vector> {
    /// A number of the rows.
    type Row: Copy;
    /// A number of the columns.
    type Column: Copy;
    /// A number for each lane.
    type Lanes: Copy;

    /// Whether a depth adds two products to a sum, one after the other.
    const HAS_TWO_PRODUCTS: bool = false;

    /// The factor of a row in its product `P`, in every lane.
    fn splat<const P: usize>(number: &Self::Row) -> Self::Lanes;

    /// The factors of some columns in their product `P`, one for each lane of `V`. Panics if there are fewer.
    fn load<const P: usize>(from: &[Self::Column]) -> Self::Lanes;

    /// `sum + a b`
    fn add_product(a: Self::Lanes, b: Self::Lanes, sum: V) -> V;
}

/// The numbers of a vector, as they are.
struct Whole;

impl<V: Vector> Factors<V> for Whole {
    type Row = V::Element;
    type Column = V::Element;
    type Lanes = V;

    #[inline(always)]
    fn splat<const P: usize>(number: &V::Element) -> V {
        V::splat(*number)
    }

    #[inline(always)]
    fn load<const P: usize>(from: &[V::Element]) -> V {
        V::load(from)
    }

    #[inline(always)]
    fn add_product(a: V, b: V, sum: V) -> V {
        a.mul_add(b, sum)
    }
}

/// A product of rows of numbers `A` and columns of numbers `B`, whose sums are numbers `E`.
pub(super) struct Product<'a, 'b, E, A, B> {
    pub(super) to: &'a mut [MatrixMut<'b, E>],
    pub(super) initial: Initial<'a, E>,
    pub(super) rows: Matrix<'a, A>,
    pub(super) columns: Panels<'a, B>,
    /// The number of columns.
    pub(super) all: usize,
    /// Numbers that the caller reads after the product, and that are in no cache yet.
    next: Option<Matrix<'a, E>>,
}

impl<E: Real> Kernel for Product<'_, '_, E, E, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.multiply::<V, Whole>();
    }
}

impl<'a, 'b, E: Real, A: Copy, B: Copy> Product<'a, 'b, E, A, B> {
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub(super) fn new(
        to: &'a mut [MatrixMut<'b, E>],
        initial: Initial<'a, E>,
        rows: Matrix<'a, A>,
        columns: Panels<'a, B>,
    ) -> Self {
        let count = rows.rows();
        let all = to.iter().map(MatrixMut::cols).sum();
        assert!(
            to.iter().all(|to| to.rows() == count) && rows.cols() == columns.depth,
            "{count} rows of {} and panels of a depth of {} for {to:?}",
            rows.cols(),
            columns.depth
        );
        match initial {
            Initial::OfRows(x) => assert_eq!(x.len(), count, "a number for each row"),
            Initial::OfColumns(x) => assert_eq!(x.len(), all, "a number for each column"),
            Initial::Zero | Initial::Old => {}
        }
        Self {
            to,
            initial,
            rows,
            columns,
            all,
            next: None,
        }
    }

    /// The product of the same columns with other rows.
    pub(super) fn with_rows<C: Copy>(self, rows: Matrix<'a, C>) -> Product<'a, 'b, E, C, B> {
        Product {
            next: self.next,
            ..Product::new(self.to, self.initial, rows, self.columns)
        }
    }

    /// Prefetches numbers that the caller reads after the product.
    pub(super) fn prefetching(self, next: Option<Matrix<'a, E>>) -> Self {
        Self { next, ..self }
    }

    #[inline(always)]
    pub(super) fn multiply<V: Vector<Element = E>, F: Factors<V, Row = A, Column = B>>(mut self) {
        match vectors_of_tile::<V>() {
            FEW_VECTORS => self.tiles::<V, F, FEW_VECTORS>(),
            _ => self.tiles::<V, F, VECTORS>(),
        }
    }

    /// All tiles, of at most `M` vectors each.
    ///
    /// The first-level cache keeps what the next tile reads again. Those are the columns of the tile, if neighbouring depths of a panel are in
    /// neighbouring lines: the tiles of a block of rows come one after another. Otherwise they are the rows of the tile.
    #[inline(always)]
    fn tiles<V: Vector<Element = E>, F: Factors<V, Row = A, Column = B>, const M: usize>(
        &mut self,
    ) {
        let width = self.columns.width();
        let step = M * V::LANES;
        let count = self.rows.rows();
        let tiles_of_block = match self.columns.stride * size_of::<B>() {
            ..=LINE => TILES_OF_BLOCK,
            _ => 1,
        };
        let mut first = 0;
        while first < count {
            let tiles = 0..tiles_of_block;
            let end = tiles.fold(first, |row, _| row + rows_of_tile(count - row));
            for (panel, left) in (0..self.all).step_by(width).enumerate() {
                let b = self.columns.panel(panel);
                let columns = width.min(self.all - left);
                for col in (0..columns).step_by(step) {
                    let columns = left + col..left + columns.min(col + step);
                    self.tiles_of_columns::<V, F, M>(b, col, first..end, columns);
                }
            }
            first = end;
        }
    }

    /// The tiles of a block of rows, of columns of the panel `b` from `col` on.
    #[inline(always)]
    fn tiles_of_columns<
        V: Vector<Element = E>,
        F: Factors<V, Row = A, Column = B>,
        const M: usize,
    >(
        &mut self,
        b: Panel<'_, B>,
        col: usize,
        block: Range<usize>,
        columns: Range<usize>,
    ) {
        let is_last = columns.end == self.all;
        let mut row = block.start;
        while row < block.end {
            let some = rows_of_tile(self.rows.rows() - row);
            let place = Place {
                rows: row..row + some,
                columns: columns.clone(),
            };
            match (columns.len().div_ceil(V::LANES), some) {
                (1, _) => self.tile::<V, F, TILE_ROWS, 1>(b, col, place, is_last),
                (2, _) if M > 2 => self.tile::<V, F, TILE_ROWS, 2>(b, col, place, is_last),
                (3, _) if M > 3 => self.tile::<V, F, TILE_ROWS, 3>(b, col, place, is_last),
                (_, 1..=2) => self.tile::<V, F, 2, M>(b, col, place, is_last),
                (_, 3..=4) => self.tile::<V, F, 4, M>(b, col, place, is_last),
                _ => self.tile::<V, F, TILE_ROWS, M>(b, col, place, is_last),
            }
            row += some;
        }
    }

    /// The tile at `place`, of up to `R` rows and of `C` vectors from column `col` of the panel `b` on. It may prefetch what is read next.
    #[inline(always)]
    fn tile<V, F, const R: usize, const C: usize>(
        &mut self,
        b: Panel<'_, B>,
        col: usize,
        place: Place,
        prefetches: bool,
    ) where
        V: Vector<Element = E>,
        F: Factors<V, Row = A, Column = B>,
    {
        self.prefetch_results::<R>(&place, C * size_of::<V>());
        let prefetch = match prefetches {
            true => self.prefetch(&place, R),
            false => Prefetch::Row(0),
        };
        let sums = sums::<V, F, R, C>(self.rows, place.rows.start, b, col, prefetch);
        self.write::<V, _, R, C>(&place, sums);
    }
}

impl<E: Real, A: Copy, B: Copy> Product<'_, '_, E, A, B> {
    /// Prefetches the memory of the results of a tile of `R` rows and `bytes` bytes of each, which is in a cache when the sums are ready.
    #[inline(always)]
    pub(super) fn prefetch_results<const R: usize>(&self, place: &Place, bytes: usize) {
        let mut start = 0;
        for piece in &*self.to {
            let end = start + piece.cols();
            if start <= place.columns.start && place.columns.end <= end {
                let stride = piece.row_stride();
                let first = place.rows.start * stride + place.columns.start - start;
                let mut row = piece.as_ptr().wrapping_add(first);
                for _ in 0..R {
                    let line = row.cast::<u8>();
                    (0..bytes)
                        .step_by(LINE)
                        .for_each(|at| prefetch_line(line.wrapping_add(at)));
                    row = row.wrapping_add(stride);
                }
            }
            start = end;
        }
    }

    /// The memory that a tile of `rows` rows prefetches: its share of the numbers that the caller reads next, or the last row of the next tile.
    #[inline(always)]
    fn prefetch(&self, place: &Place, rows: usize) -> Prefetch {
        match self.next_ahead(place.rows.start, rows) {
            Some((ahead, _)) => Prefetch::Next(ahead),
            None => Prefetch::Row((2 * rows - 1) * self.rows.strides().0),
        }
    }

    /// The share of a tile of `rows` rows, from `row` on, of the numbers that the caller reads next, and its lines.
    #[inline(always)]
    pub(super) fn next_ahead(&self, row: usize, rows: usize) -> Option<(Ahead, usize)> {
        let next = self.next?;
        let next = match next.has_row_slices() {
            true => next,
            false => next.transposed(),
        };
        let share = next.rows().div_ceil(self.rows.rows().div_ceil(rows));
        let first = row / rows * share;
        let stride = next.row_stride();
        let bytes = (next.cols() * size_of::<E>()).next_multiple_of(LINE);
        let piece = next.as_ptr().wrapping_add(first * stride);
        let ahead = Ahead::new(piece.cast(), bytes, stride * size_of::<E>());
        Some((ahead, share * bytes / LINE))
    }
}

/// The rows of the next tile, if there are so many left: all tiles have about as many.
fn rows_of_tile(left: usize) -> usize {
    left.div_ceil(left.div_ceil(TILE_ROWS).max(1))
}
