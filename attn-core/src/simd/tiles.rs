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

use std::sync::atomic::{Ordering, compiler_fence};
use std::{borrow::Borrow, hint::black_box, marker::PhantomData, ops::Range, slice};

use super::panels::Panel;
use super::prefetch::{Ahead, LINE, prefetch_line};
use super::slice::{load_any, store_any};
use super::{Kernel, Matrix, MatrixMut, Panels, Real, Vector, WriteMode, run};

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

/// The depths in the body of a loop over rows whose numbers are contiguous. With one alone, a tile of two vectors takes a sixth more instructions. These
/// limit it where a core has two hardware threads: while both are busy, each begins half as many instructions.
const UNROLLED: usize = 4;

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

/// `to = initial + rows columns`, on the calling thread, where `to` is a matrix in pieces that stand side by side, of so many rows.
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

    /// Writes the sums of the tile at `place`.
    #[inline(always)]
    pub(super) fn write<V, S, const R: usize, const C: usize>(&mut self, place: &Place, sums: S)
    where
        V: Vector<Element = E>,
        S: Borrow<[[V; C]; R]> + Copy,
    {
        let mut start = 0;
        for piece in &mut *self.to {
            let end = start + piece.cols();
            let some = place.columns.start.max(start)..place.columns.end.min(end);
            if place.is_whole::<V, R, C>() && some == place.columns {
                let columns = some.start - start..some.end - start;
                write_whole(sums.borrow(), piece, self.initial, place, columns);
            } else if !some.is_empty() {
                // A copy, as sums whose address is taken would be in memory from the first one on.
                let copied = sums;
                let numbers = numbers(copied.borrow()).chunks_exact(C * V::LANES);
                self.initial
                    .write_part::<V>(numbers, piece, start, place, some);
            }
            start = end;
        }
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

/// The memory that a tile prefetches at each depth.
enum Prefetch {
    /// A place that is so many numbers behind the first row of the tile. It is prefetched if the numbers of a row stand apart: each depth is then in a
    /// cache line of its own, of which the processor foresees nothing.
    Row(usize),
    /// A line of the numbers that the caller reads next.
    Next(Ahead),
}

/// The rows of the next tile, if there are so many left: all tiles have about as many.
fn rows_of_tile(left: usize) -> usize {
    left.div_ceil(left.div_ceil(TILE_ROWS).max(1))
}

/// The part of the result that a tile computes.
pub(super) struct Place {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Place {
    /// Whether all sums of a tile have a place.
    #[inline(always)]
    fn is_whole<V: Vector, const R: usize, const N: usize>(&self) -> bool {
        self.rows.len() == R && self.columns.len() == N * V::LANES
    }
}

/// Writes a tile of whole vectors to `columns` of a piece.
#[inline(always)]
fn write_whole<V: Vector, const R: usize, const N: usize>(
    sums: &[[V; N]; R],
    piece: &mut MatrixMut<'_, V::Element>,
    initial: Initial<'_, V::Element>,
    place: &Place,
    columns: Range<usize>,
) {
    macro_rules! row {
        ($i:ident) => {
            &mut piece.row_mut(place.rows.start + $i)[columns.clone()]
        };
    }
    // Loops, and no calls of `for_each`: the compiler may leave its closures as functions, in which it can't use the vectors.
    match initial {
        Initial::Zero => {
            for (i, sums) in sums.iter().enumerate() {
                write_row(sums, row!(i), |sum, _| sum);
            }
        }
        Initial::Old => {
            for (i, sums) in sums.iter().enumerate() {
                write_row(sums, row!(i), |sum, old| V::load(old) + sum);
            }
        }
        Initial::OfRows(of) => {
            for (i, sums) in sums.iter().enumerate() {
                let of = V::splat(of[place.rows.start + i]);
                write_row(sums, row!(i), |sum, _| of + sum);
            }
        }
        Initial::OfColumns(of) => {
            let mut starts = [V::zero(); N];
            for (n, start) in starts.iter_mut().enumerate() {
                *start = V::load(&of[place.columns.start + n * V::LANES..]);
            }
            for (i, sums) in sums.iter().enumerate() {
                let mut sums = *sums;
                for n in 0..N {
                    sums[n] = starts[n] + sums[n];
                }
                write_row(&sums, row!(i), |sum, _| sum);
            }
        }
    }
}

#[inline(always)]
fn write_row<V: Vector, const N: usize>(
    sums: &[V; N],
    to: &mut [V::Element],
    value: impl Fn(V, &[V::Element]) -> V,
) {
    for n in 0..N {
        let to = &mut to[n * V::LANES..(n + 1) * V::LANES];
        value(sums[n], to).store(to);
    }
}

impl<E: Real> Initial<'_, E> {
    /// Writes the numbers of a tile that are in `columns` of the result, to a piece whose first column is `start`.
    #[inline(always)]
    fn write_part<'s, V: Vector<Element = E>>(
        self,
        numbers: impl Iterator<Item = &'s [E]>,
        piece: &mut MatrixMut<'_, E>,
        start: usize,
        place: &Place,
        columns: Range<usize>,
    ) where
        E: 's,
    {
        for (row, numbers) in place.rows.clone().zip(numbers) {
            let to = &mut piece.row_mut(row)[columns.start - start..columns.end - start];
            let numbers = &numbers[columns.start - place.columns.start..][..to.len()];
            for at in (0..to.len()).step_by(V::LANES) {
                let to = &mut to[at..];
                let sum = load_any::<V>(&numbers[at..]);
                let sum = match self {
                    Initial::Zero => sum,
                    Initial::Old => load_any::<V>(to) + sum,
                    Initial::OfRows(of) => V::splat(of[row]) + sum,
                    Initial::OfColumns(of) => {
                        load_any::<V>(&of[columns.start + at..columns.end]) + sum
                    }
                };
                store_any(sum, to);
            }
        }
    }
}

/// The sums of `R` rows from `first` on, and of `N` vectors of columns of the panel `b` from `col` on. Behind the last row there is that one
/// again.
#[inline(always)]
fn sums<V: Vector, F: Factors<V>, const R: usize, const N: usize>(
    a: Matrix<'_, F::Row>,
    first: usize,
    b: Panel<'_, F::Column>,
    col: usize,
    prefetch: Prefetch,
) -> [[V; N]; R] {
    let depth = a.cols();
    let last_depth = depth.saturating_sub(1) * b.stride;
    assert!(
        first < a.rows() && (depth == 0 || last_depth + col + N * V::LANES <= b.numbers.len()),
        "a tile within its rows and its panel"
    );
    if depth == 0 {
        return [[V::zero(); N]; R];
    }
    let (row_stride, step) = a.strides();
    // SAFETY: these are a row and a column that exist.
    let (rows, columns) = unsafe {
        (
            a.as_ptr().add(first * row_stride),
            b.numbers.as_ptr().add(col),
        )
    };
    let depths = Depths {
        count: depth,
        // The compiler would compute the place of each row from that of the row before, and six such steps take longer than the products of a row with
        // few columns. It does not know where the second half of the rows is.
        rows: [rows, black_box(rows.wrapping_add(R / 2 * row_stride))],
        step,
        columns,
        stride: b.stride,
    };
    let count = a.rows() - first;
    // A loop for each of these layouts: the compiler needs fewer registers for the places of the rows in the first two.
    // SAFETY: each row of the tile is one of `a`, which has a number for each depth. The columns of the tile at the last depth are within the panel.
    unsafe {
        match row_stride {
            1 if count >= R => {
                depths.sums::<V, F, R, N>(|[rows, _], row| rows.wrapping_add(row), prefetch)
            }
            _ if count >= R => depths.sums::<V, F, R, N>(
                |[rows, behind], row| match row.checked_sub(R / 2) {
                    None => rows.wrapping_add(row * row_stride),
                    Some(row) => behind.wrapping_add(row * row_stride),
                },
                prefetch,
            ),
            _ => {
                let offsets: [usize; R] =
                    std::array::from_fn(|row| row.min(count - 1) * row_stride);
                depths
                    .sums::<V, F, R, N>(|[rows, _], row| rows.wrapping_add(offsets[row]), prefetch)
            }
        }
    }
}

/// The numbers that a tile multiplies.
#[derive(Clone, Copy)]
struct Depths<A, B> {
    /// The number of depths.
    count: usize,
    /// The first row, and the first one of the second half.
    rows: [*const A; 2],
    /// The distance between neighbouring depths of a row.
    step: usize,
    /// The columns of the first depth.
    columns: *const B,
    /// The distance between neighbouring depths of the columns.
    stride: usize,
}

impl<A: Copy, B: Copy> Depths<A, B> {
    /// The sums of products. `place` is that of a row, from those of the first one and of the first one of the second half.
    ///
    /// # Safety
    /// At each depth there is a number at the place of each row, and `N` vectors of columns.
    #[inline(always)]
    unsafe fn sums<
        V: Vector,
        F: Factors<V, Row = A, Column = B>,
        const R: usize,
        const N: usize,
    >(
        self,
        place: impl Fn([*const A; 2], usize) -> *const A,
        prefetch: Prefetch,
    ) -> [[V; N]; R] {
        let mut sums = [[V::zero(); N]; R];
        // Behind the last depth they may point outside of both sides, and are not read.
        let (mut rows, mut columns) = (self.rows, self.columns);
        macro_rules! add_depth {
            ($at:expr) => {
                // SAFETY: the caller says that these columns are there, and that each row has a number here.
                unsafe {
                    let place = |row| place(rows, row).wrapping_add($at);
                    add_depth::<V, F, R, N>(&mut sums, place, columns);
                }
                columns = columns.wrapping_add(self.stride);
            };
        }
        let row = match prefetch {
            Prefetch::Row(row) => row,
            Prefetch::Next(mut ahead) => {
                for _ in 0..self.count {
                    ahead.prefetch_next();
                    add_depth!(0);
                    rows = rows.map(|row| row.wrapping_add(self.step));
                }
                return sums;
            }
        };
        if self.step != 1 {
            for _ in 0..self.count {
                prefetch_line(rows[0].wrapping_add(row));
                add_depth!(0);
                rows = rows.map(|row| row.wrapping_add(self.step));
            }
            return sums;
        }
        let mut depths = self.count;
        while depths >= UNROLLED {
            macro_rules! add_depths {
                ($($at:literal)*) => {$(
                    const { assert!($at < UNROLLED) };
                    add_depth!($at);
                    // The compiler must not load numbers of the next depth earlier: they would take registers from the sums.
                    compiler_fence(Ordering::SeqCst);
                )*};
            }
            add_depths!(0 1 2 3);
            rows = rows.map(|row| row.wrapping_add(UNROLLED));
            depths -= UNROLLED;
        }
        for _ in 0..depths {
            add_depth!(0);
            rows = rows.map(|row| row.wrapping_add(self.step));
        }
        sums
    }
}

/// Adds the products of a depth to each sum.
///
/// # Safety
/// There is a number at the place of each row, and there are `N` vectors of columns.
#[inline(always)]
unsafe fn add_depth<V: Vector, F: Factors<V>, const R: usize, const N: usize>(
    sums: &mut [[V; N]; R],
    place: impl Fn(usize) -> *const F::Row,
    columns: *const F::Column,
) {
    // SAFETY: the caller says so.
    unsafe {
        add_products::<V, F, 0, R, N>(sums, &place, columns);
        if F::HAS_TWO_PRODUCTS {
            add_products::<V, F, 1, R, N>(sums, &place, columns);
        }
    }
}

/// Adds the product `P` of a depth to each sum. A function, as the compiler does not unroll a loop over the products of a depth.
///
/// # Safety
/// There is a number at the place of each row, and there are `N` vectors of columns.
#[inline(always)]
unsafe fn add_products<V: Vector, F: Factors<V>, const P: usize, const R: usize, const N: usize>(
    sums: &mut [[V; N]; R],
    place: impl Fn(usize) -> *const F::Row,
    columns: *const F::Column,
) {
    let b: [F::Lanes; N] = std::array::from_fn(|n| {
        // SAFETY: the caller says that these columns are there.
        F::load::<P>(unsafe { slice::from_raw_parts(columns.add(n * V::LANES), V::LANES) })
    });
    // A number is loaded where it is multiplied. All of them at once would take registers from the sums.
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller says that each row has a number here.
        let a = F::splat::<P>(unsafe { &*place(row) });
        for (sum, b) in sums.iter_mut().zip(b) {
            *sum = F::add_product(a, b, *sum);
        }
    }
}

/// The sums as numbers, `[R, N * LANES]`.
fn numbers<V: Vector, const R: usize, const N: usize>(sums: &[[V; N]; R]) -> &[V::Element] {
    const { assert!(size_of::<V>() == V::LANES * size_of::<V::Element>()) };
    // SAFETY: a vector has its lanes side by side, and as many bytes.
    unsafe { slice::from_raw_parts(sums.as_ptr().cast(), R * N * V::LANES) }
}
