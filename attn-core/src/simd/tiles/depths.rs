//! The sums of a tile, over all depths.

use std::hint::black_box;
use std::slice;
use std::sync::atomic::{Ordering, compiler_fence};

use super::super::panels::Panel;
use super::super::prefetch::{Ahead, prefetch_line};
use super::super::{Matrix, Vector};
use super::Factors;

/// The depths in the body of a loop over rows whose numbers are contiguous. With one alone, a tile of two vectors takes a sixth more instructions. These
/// limit it where a core has two hardware threads: while both are busy, each begins half as many instructions.
const UNROLLED: usize = 4;

/// The memory that a tile prefetches at each depth.
pub(super) enum Prefetch {
    /// A place that is so many numbers behind the first row of the tile. It is prefetched if the numbers of a row stand apart: each depth is then in a
    /// cache line of its own, of which the processor foresees nothing.
    Row(usize),
    /// A line of the numbers that the caller reads next.
    Next(Ahead),
}

/// The sums of `R` rows from `first` on, and of `N` vectors of columns of the panel `b` from `col` on. Behind the last row there is that one
/// again.
#[inline(always)]
pub(super) fn sums<V: Vector, F: Factors<V>, const R: usize, const N: usize>(
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
