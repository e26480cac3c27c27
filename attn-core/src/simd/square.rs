//! Squares of a matrix, of as many rows and columns as a vector has lanes.

use std::slice;

use super::vector::MAX_LANES;
use super::{Matrix, MatrixMut, Vector, WriteMode};

/// The rows of a square as vectors: as many as there are lanes.
pub type Square<V> = [V; MAX_LANES];

/// The square of a matrix with this first row and column.
///
/// # Panics
/// If it is not within the matrix, or the elements of a row are not contiguous.
#[allow(
    clippy::needless_range_loop,
    reason = "a loop of constant bounds over indices is unrolled, and its vectors stay in registers"
)]
#[inline(always)]
pub(super) fn load_square<V: Vector>(
    x: Matrix<'_, V::Element>,
    (row, col): (usize, usize),
) -> Square<V> {
    assert!(
        row + V::LANES <= x.rows() && col + V::LANES <= x.cols() && x.has_row_slices(),
        "a square within {x:?}"
    );
    let (stride, _) = x.strides();
    let mut square = [V::zero(); MAX_LANES];
    // SAFETY: the first number of the square is in the matrix.
    let mut from = unsafe { x.as_ptr().add(row * stride + col) };
    for i in 0..V::LANES {
        // SAFETY: this is a row of the square.
        square[i] = V::load(unsafe { slice::from_raw_parts(from, V::LANES) });
        from = from.wrapping_add(stride);
    }
    square
}

/// Writes a square to that of a matrix with this first row and column, or adds it to what is there.
///
/// # Panics
/// If it is not within the matrix.
#[allow(clippy::needless_range_loop, reason = "as in `load_square`")]
#[inline(always)]
pub(super) fn store_square<V: Vector>(
    square: &Square<V>,
    to: &mut MatrixMut<'_, V::Element>,
    (row, col): (usize, usize),
    into: WriteMode,
) {
    assert!(
        row + V::LANES <= to.rows() && col + V::LANES <= to.cols(),
        "a square within {to:?}"
    );
    let stride = to.row_stride();
    // SAFETY: the first number of the square is in the matrix.
    let mut to = unsafe { to.as_mut_ptr().add(row * stride + col) };
    for i in 0..V::LANES {
        // SAFETY: this is a row of the square, and nothing else has a part of the matrix meanwhile.
        let numbers = unsafe { slice::from_raw_parts_mut(to, V::LANES) };
        match into {
            WriteMode::Overwrite => square[i].store(numbers),
            WriteMode::Add => (V::load(numbers) + square[i]).store(numbers),
        }
        to = to.wrapping_add(stride);
    }
}

/// The transpose. Interleaving the upper with the lower half of the vectors moves one bit from their index to that of the lanes. Doing so once for
/// each bit is a transpose.
#[inline(always)]
pub fn transpose_square<V: Vector>(square: &mut Square<V>) {
    for _ in 0..V::LANES.ilog2() {
        let before = *square;
        for i in 0..V::LANES / 2 {
            (square[2 * i], square[2 * i + 1]) = before[i].interleave(before[i + V::LANES / 2]);
        }
    }
}
