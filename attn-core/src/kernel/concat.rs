//! Ranges of the columns of a matrix: concatenation, copies of a range, and the derivatives.
//!
//! PyTorch: `torch.cat((x, y), -1)`, `x[:, start:end]`. An axis of any tensor is columns of the matrix `[outer, len * inner]`.

use super::compiled::compiled;
use super::parallel::{SMALL, for_each, rectangles};
use super::{Matrix, MatrixMut, assert_same_shape};
use crate::simd::call;

compiled! {
    Concat:

    /// Row `i` of `to [n, a + b]` is row `i` of `x [n, a]` and row `i` of `y [n, b]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(x: Matrix<'_, E>, y: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        assert!(
            x.rows() == to.rows() && y.rows() == to.rows() && x.cols() + y.cols() == to.cols(),
            "({} x {}) beside ({} x {}) are not ({} x {})",
            x.rows(), x.cols(), y.rows(), y.cols(), to.rows(), to.cols()
        );
        let a = x.cols();
        for_each(rectangles(to, SMALL), |(row, col, mut to)| {
            let end = col + to.cols();
            let x = x.some_cols(col.min(a)..end.min(a));
            let y = y.some_cols(col.max(a) - a..end.max(a) - a);
            for i in 0..to.rows() {
                let (left, right) = to.row_mut(i).split_at_mut(x.cols());
                left.copy_from_slice(x.row(row + i));
                right.copy_from_slice(y.row(row + i));
            }
        });
    }

    /// Copies the rows of a range of columns, a view by [`Matrix::some_cols`], to those of `to`.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn copy_rows<E>(x: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        assert_same_shape(x, to.rows(), to.cols());
        for_each(rectangles(to, SMALL), |(row, col, mut to)| {
            let x = x.some_cols(col..col + to.cols());
            to.copy_from(x.some_rows(row..row + to.rows()));
        });
    }

    /// Writes zeros to the rows of a range of columns.
    pub fn zero_rows<E>(to: MatrixMut<'_, E>) {
        for_each(rectangles(to, SMALL), |(_, _, mut to)| to.fill(0.0));
    }

    /// Adds the rows of `x` to those of `to`. Either may be a range of the columns of a larger matrix.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn add_rows<E>(x: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        assert_same_shape(x, to.rows(), to.cols());
        for_each(rectangles(to, SMALL), |(row, col, mut to)| {
            let x = x.some_cols(col..col + to.cols());
            for i in 0..to.rows() {
                call::axpy(1.0, x.row(row + i), to.row_mut(i));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    /// Rows, and the columns of both operands. One row is longer than the part of a thread.
    const SIZES: [[usize; 3]; 7] = [
        [1, 1, 1],
        [3, 5, 2],
        [900, 17, 33],
        [2, SMALL + 3, SMALL + 1],
        [0, 2, 3],
        [3, 0, 2],
        [3, 2, 0],
    ];

    #[test]
    fn rows_are_concatenated_and_their_gradients_split() {
        for [rows, a, b] in SIZES {
            let x = noise::<f32>(rows * a, 1);
            let y = noise::<f32>(rows * b, 2);
            let mut to = vec![f32::NAN; rows * (a + b)];
            let both = MatrixMut::new(&mut to, rows, a + b);
            forward(Matrix::new(&x, rows, a), Matrix::new(&y, rows, b), both);
            let both = Matrix::new(&to, rows, a + b);
            for i in 0..rows {
                assert_eq!(both.row(i), [&x[i * a..][..a], &y[i * b..][..b]].concat());
            }
            let mut apart = vec![0.0; rows * b];
            let to = MatrixMut::new(&mut apart, rows, b);
            add_rows(both.some_cols(a..a + b), to);
            assert_eq!(apart, y);
            apart.fill(f32::NAN);
            let to = MatrixMut::new(&mut apart, rows, b);
            copy_rows(both.some_cols(a..a + b), to);
            assert_eq!(apart, y);
        }
    }

    #[test]
    fn other_columns_are_not_written() {
        for [rows, a, b] in SIZES {
            let y = noise::<f32>(rows * b, 2);
            let mut to = vec![1.0; rows * (a + b)];
            let (_, right) = MatrixMut::new(&mut to, rows, a + b).split_cols(a);
            add_rows(Matrix::new(&y, rows, b), right);
            for (i, row) in to.chunks((a + b).max(1)).enumerate() {
                let right = y[i * b..][..b].iter().map(|y| y + 1.0);
                assert!(
                    row.iter()
                        .copied()
                        .eq(std::iter::repeat_n(1.0, a).chain(right))
                );
            }
        }
    }
}
