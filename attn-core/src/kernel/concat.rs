//! Concatenation of rows, and the derivative.
//!
//! PyTorch: `torch.cat((x, y), -1)`.

use super::compiled::compiled;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut};
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
        let chunk = rows_per_task(to.cols());
        let parts = to.row_chunks(chunk).enumerate();
        for_each(parts, |(index, mut to)| {
            for i in 0..to.rows() {
                let (left, right) = to.row_mut(i).split_at_mut(x.cols());
                left.copy_from_slice(x.row(index * chunk + i));
                right.copy_from_slice(y.row(index * chunk + i));
            }
        });
    }

    /// Adds the rows of a range of columns, a view by [`Matrix::some_cols`], to those of `to`.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn add_rows<E>(x: Matrix<'_, E>, to: MatrixMut<'_, E>) {
        assert!(x.rows() == to.rows() && x.cols() == to.cols(), "the shapes differ");
        let chunk = rows_per_task(to.cols());
        let parts = to.row_chunks(chunk).enumerate();
        for_each(parts, |(index, mut to)| {
            for i in 0..to.rows() {
                call::axpy(1.0, x.row(index * chunk + i), to.row_mut(i));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    #[test]
    fn rows_are_concatenated_and_their_gradients_split() {
        for (rows, a, b) in [
            (1, 1, 1),
            (3, 5, 2),
            (900, 17, 33),
            (0, 2, 3),
            (3, 0, 2),
            (3, 2, 0),
        ] {
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
        }
    }
}
