//! The transpose of a matrix, square by square in registers.

use super::slice::{load_any, store_any};
use super::square::{load_square, store_square};
use super::{
    Kernel, MAX_LANES, Matrix, MatrixMut, Real, Vector, WriteMode, prefetch_rows, run,
    transpose_square,
};

/// `to = xᵀ`, on one thread.
///
/// # Panics
/// If the shapes do not fit, or the elements of a row of `x` are not contiguous.
#[track_caller]
pub(crate) fn transpose<E: Real>(x: Matrix<'_, E>, to: MatrixMut<'_, E>) {
    assert!(
        x.rows() == to.cols() && x.cols() == to.rows(),
        "the transpose of ({} x {}) into ({} x {})",
        x.rows(),
        x.cols(),
        to.rows(),
        to.cols()
    );
    run(Transpose { x, to });
}

struct Transpose<'a, E> {
    x: Matrix<'a, E>,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Transpose<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        transpose_here::<V>(self.x, &mut self.to, WriteMode::Overwrite);
    }
}

/// [`transpose`] as a part of a kernel: `to = xᵀ` or `to += xᵀ`. Panics if `to` has fewer rows or columns.
#[inline(always)]
pub(crate) fn transpose_here<V: Vector>(
    x: Matrix<'_, V::Element>,
    to: &mut MatrixMut<'_, V::Element>,
    into: WriteMode,
) {
    // The loop is along the rows of the result, so that few rows are written at a time.
    for col in (0..x.cols()).step_by(V::LANES) {
        let next = col + V::LANES..x.cols().min(col + 2 * V::LANES);
        for row in (0..x.rows()).step_by(V::LANES) {
            // The squares beside these are read next: short pieces far apart.
            if !next.is_empty() {
                let rows = row..x.rows().min(row + V::LANES);
                prefetch_rows(x, rows, next.clone());
            }
            let is_whole = row + V::LANES <= x.rows() && col + V::LANES <= x.cols();
            if is_whole {
                let mut square = load_square::<V>(x, (row, col));
                transpose_square(&mut square);
                store_square(&square, to, (col, row), into);
            } else {
                transpose_part::<V>(x, to, (row, col), into);
            }
        }
    }
}

/// The part within `x` of the square that starts at `row` and `col`.
#[allow(
    clippy::needless_range_loop,
    reason = "loops of constant bounds over indices are unrolled, and their vectors stay in registers"
)]
#[inline(always)]
fn transpose_part<V: Vector>(
    x: Matrix<'_, V::Element>,
    to: &mut MatrixMut<'_, V::Element>,
    (row, col): (usize, usize),
    into: WriteMode,
) {
    let rows = x.rows() - row;
    let cols = x.cols() - col;
    let mut square = [V::zero(); MAX_LANES];
    for i in 0..V::LANES {
        if i < rows {
            square[i] = load_any(&x.row(row + i)[col..]);
        }
    }
    transpose_square(&mut square);
    for j in 0..V::LANES {
        if j < cols {
            let to = &mut to.row_mut(col + j)[row..];
            match into {
                WriteMode::Overwrite => store_any(square[j], to),
                WriteMode::Add => store_any(load_any::<V>(to) + square[j], to),
            }
        }
    }
}
