//! The transpose of a matrix, copied tile by tile.

use std::array::from_fn;

use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};

/// Rows and columns of a tile: a cache line of `f32`, in what is read and in what is written.
const TILE: usize = 16;
/// The rows of the result that one thread writes are a multiple of this, for it reads as many neighbouring columns.
const STRIP: usize = 64;

/// `to = xᵀ`
///
/// # Panics
/// If the shapes do not fit, or the elements of a row of `x` do not lie side by side.
#[track_caller]
pub(super) fn transpose<E: Real>(x: Matrix<'_, E>, to: MatrixMut<'_, E>) {
    assert!(
        x.rows() == to.cols() && x.cols() == to.rows(),
        "the transpose of ({} x {}) into ({} x {})",
        x.rows(),
        x.cols(),
        to.rows(),
        to.cols()
    );
    let strip = rows_per_task(x.rows()).next_multiple_of(STRIP);
    let strips = to.row_chunks(strip).into_iter().enumerate().collect();
    for_each(strips, |(index, mut to)| {
        let start = index * strip;
        let x = x.some_cols(start..start + to.rows());
        for row in (0..x.rows()).step_by(TILE) {
            for col in (0..x.cols()).step_by(TILE) {
                transpose_tile(x, &mut to, row, col);
            }
        }
    });
}

/// The tile of `x` that starts at `row` and `col`, or what there is of it.
#[inline(always)]
fn transpose_tile<E: Real>(x: Matrix<'_, E>, to: &mut MatrixMut<'_, E>, row: usize, col: usize) {
    if row + TILE <= x.rows() && col + TILE <= x.cols() {
        let mut from = [[E::ZERO; TILE]; TILE];
        for (i, from) in from.iter_mut().enumerate() {
            from.copy_from_slice(&x.row(row + i)[col..col + TILE]);
        }
        for j in col..col + TILE {
            let column: [E; TILE] = from_fn(|i| from[i][j - col]);
            to.row_mut(j)[row..row + TILE].copy_from_slice(&column);
        }
    } else {
        for i in row..x.rows().min(row + TILE) {
            for j in col..x.cols().min(col + TILE) {
                to.row_mut(j)[i] = x.row(i)[j];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::LENGTHS;

    #[test]
    fn rows_become_columns() {
        for rows in LENGTHS {
            for cols in LENGTHS {
                let wide: Vec<f64> = (0..rows * (cols + 3)).map(|i| i as f64).collect();
                let x = Matrix::strided(&wide, rows, cols, cols + 3, 1);
                let mut to = vec![-1.0; cols * (rows + 2)];
                transpose(x, MatrixMut::strided(&mut to, cols, rows, rows + 2));
                for j in 0..cols {
                    for i in 0..rows {
                        assert_eq!(to[j * (rows + 2) + i], x.get(i, j), "{rows} x {cols}");
                    }
                    assert_eq!(to[j * (rows + 2) + rows..][..2], [-1.0; 2]);
                }
            }
        }
    }

    #[test]
    fn a_large_one_is_shared_between_threads() {
        let (rows, cols) = (300, 500);
        let x: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
        let (mut once, mut twice) = (vec![0.0; rows * cols], vec![0.0; rows * cols]);
        transpose(
            Matrix::new(&x, rows, cols),
            MatrixMut::new(&mut once, cols, rows),
        );
        transpose(
            Matrix::new(&once, cols, rows),
            MatrixMut::new(&mut twice, rows, cols),
        );
        assert_eq!(once[1], x[cols]);
        assert_eq!(twice, x);
    }
}
