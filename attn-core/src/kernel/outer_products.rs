//! A sum of outer products of the rows of two matrices: the gradient of weights.
//!
//! ```text
//! to += aᵀ b = Σ_r a_rᵀ b_r
//! ```
//!
//! There are many rows, and the result is small. Both sides are read where they stand, or the rows of `b` are packed.

use super::packed::multiply_and_sum;
use super::rounded::multiply_rounded;
use super::{Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::WriteMode;

/// `to = aᵀ b` or `to += aᵀ b`, and writes or adds the sum of every column of `a` to its element of `sums`, if there are any.
///
/// `a`: `[depth, rows]`, `b`: `[depth, cols]`, `to`: `[rows, cols]`, `sums`: `[rows]`. The rows of `a` and `b` are contiguous.
/// The order in which an element is summed depends on the depth only. The sums of columns are those of numbers that are not rounded.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn outer_products<E: Pooled>(
    to: MatrixMut<'_, E>,
    into: WriteMode,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    sums: &mut [E],
    dtype: Dtype,
) {
    let rows = to.rows();
    let depth = a.rows();
    let cols = to.cols();
    assert!(
        a.cols() == rows && b.rows() == depth && b.cols() == cols,
        "({depth} x {}) and ({} x {}) into ({rows} x {cols})",
        a.cols(),
        b.rows(),
        b.cols()
    );
    assert!(
        sums.is_empty() || sums.len() == rows,
        "{} sums of {rows} columns",
        sums.len()
    );
    if rows == 0 {
        return;
    }
    match dtype {
        Dtype::Model => multiply_and_sum([to], into.into(), a.transposed(), &b, sums),
        Dtype::Bf16 => multiply_rounded([to], into.into(), a.transposed(), &b, sums),
    }
}

/// The sums of [`outer_products`] alone, with the same bits if its operands are not rounded.
pub(super) fn column_sums<E: Pooled>(into: WriteMode, a: Matrix<'_, E>, sums: &mut [E]) {
    let to = MatrixMut::without_cols(a.cols());
    let b = Matrix::without_cols(a.rows());
    outer_products(to, into, a, b, sums, Dtype::Model);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads,
    };

    /// Sizes around those of vectors, squares, tiles and blocks of rows, and results of several tiles.
    const SHAPES: [[usize; 3]; 14] = [
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
        [1, 1, 1],
        [2, 47, 63],
        [127, 49, 65],
        [128, 48, 64],
        [129, 65, 16],
        [257, 130, 31],
        [700, 66, 33],
        [1000, 1, 1],
        [300, 5, 1030],
        [40, 600, 513],
        [5, 2050, 3],
    ];

    fn naive(to: f64, a: Matrix<'_, f32>, b: Matrix<'_, f32>) -> Vec<f64> {
        let cols = b.cols();
        let mut sums = vec![to; a.cols() * cols];
        for r in 0..a.rows() {
            for (i, &a) in a.row(r).iter().enumerate() {
                for (j, &b) in b.row(r).iter().enumerate() {
                    sums[i * cols + j] += f64::from(a) * f64::from(b);
                }
            }
        }
        sums
    }

    #[test]
    fn outer_products_are_summed_over_all_rows() {
        on_every_isa(|isa| {
            for [depth, rows, cols] in SHAPES {
                let what = format!("{depth} rows of {rows} and {cols} on {isa}");
                // Views of columns of wider matrices.
                let a = noise(depth * (rows + 2), 1);
                let b = noise(depth * (cols + 1), 2);
                let a = Matrix::new(&a, depth, rows + 2).some_cols(1..rows + 1);
                let b = Matrix::new(&b, depth, cols + 1).some_cols(1..cols + 1);
                let mut to = vec![2.0; rows * (cols + 1)];
                let mut sums = vec![3.0; rows];
                let result = MatrixMut::strided(&mut to, rows, cols, cols + 1);
                outer_products(result, WriteMode::Add, a, b, &mut sums, Dtype::Model);
                let result: Vec<f32> = to
                    .chunks(cols + 1)
                    .flat_map(|row| &row[..cols])
                    .copied()
                    .collect();
                // Partial sums of so much noise stay below 2 √depth, and each is rounded by at most 6e-8 of it.
                let tolerance = 6e-8 * (depth as f64 + 2.0) * (2.0 * (depth as f64).sqrt() + 3.0);
                assert_close(&what, &result, &naive(2.0, a, b), Absolute(tolerance));
                assert!(to.chunks(cols + 1).all(|row| row[cols] == 2.0), "{what}");
                let ones = vec![1.0; depth];
                let want = naive(3.0, a, Matrix::new(&ones, depth, 1));
                assert_close(&what, &sums, &want, Absolute(tolerance));
                // The results are the same over old numbers, which are not read.
                let mut written = vec![f32::NAN; rows * cols];
                let view = MatrixMut::new(&mut written, rows, cols);
                sums.fill(f32::NAN);
                outer_products(view, WriteMode::Overwrite, a, b, &mut sums, Dtype::Model);
                assert_close(&what, &written, &naive(0.0, a, b), Absolute(tolerance));
                let want = naive(0.0, a, Matrix::new(&ones, depth, 1));
                assert_close(&what, &sums, &want, Absolute(tolerance));
            }
        });
    }

    #[test]
    fn sums_of_many_rows_are_accurate() {
        // Sequential addition has an error of 4%.
        let depth = 1 << 20;
        let a = vec![0.1_f32; depth];
        let mut product = [0.0];
        let mut sums = [0.0];
        let column = Matrix::new(&a, depth, 1);
        outer_products(
            MatrixMut::new(&mut product, 1, 1),
            WriteMode::Add,
            column,
            column,
            &mut sums,
            Dtype::Model,
        );
        let want = depth as f64 * f64::from(0.1_f32);
        assert!((f64::from(sums[0]) / want - 1.0).abs() < 1e-5, "{sums:?}");
    }

    /// Numbers of rows that give one, two, three and four tiles, with last tiles of any size.
    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        fn check<E: Pooled>(rows: usize) {
            let [depth, cols] = [129, 128];
            let a = noise::<E>(depth * rows, 1);
            let b = noise::<E>(depth * cols, 2);
            let a = Matrix::new(&a, depth, rows);
            let b = Matrix::new(&b, depth, cols);
            same_for_all_threads(|| {
                let mut to = vec![E::ONE; rows * cols];
                let mut sums = vec![E::ONE; rows];
                let view = MatrixMut::new(&mut to, rows, cols);
                outer_products(view, WriteMode::Add, a, b, &mut sums, Dtype::Model);
                (to, sums)
            });
        }
        for rows in (1..=130).chain([700, 1_288]) {
            check::<f32>(rows);
            check::<f64>(rows);
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_part() {
        let [depth, rows, cols] = [700, 700, 600];
        let a = noise::<f32>(depth * rows, 1);
        let b = noise::<f32>(depth * cols, 2);
        let a = Matrix::new(&a, depth, rows);
        let b = Matrix::new(&b, depth, cols);
        let add = |a: Matrix<'_, f32>, b: Matrix<'_, f32>| {
            let mut to = vec![0.5; a.cols() * b.cols()];
            let mut sums = vec![0.5; a.cols()];
            let view = MatrixMut::new(&mut to, a.cols(), b.cols());
            outer_products(view, WriteMode::Add, a, b, &mut sums, Dtype::Model);
            (to, sums)
        };
        let (whole, all_sums) = add(a, b);
        for some_rows in [0..1, 5..8, 95..200, 699..700] {
            for some_cols in [0..1, 15..18, 299..300, 590..600, 300..300] {
                let some = a.some_cols(some_rows.clone());
                let (part, sums) = add(some, b.some_cols(some_cols.clone()));
                let of_whole = some_rows
                    .clone()
                    .flat_map(|i| &whole[i * cols..][some_cols.clone()]);
                assert!(part.iter().eq(of_whole), "{some_rows:?}, {some_cols:?}");
                assert_eq!(sums, all_sums[some_rows.clone()], "{some_rows:?}");
            }
            let mut sums = vec![0.5; some_rows.len()];
            column_sums(WriteMode::Add, a.some_cols(some_rows.clone()), &mut sums);
            assert_eq!(sums, all_sums[some_rows.clone()], "{some_rows:?} alone");
        }
    }

    #[test]
    #[should_panic(expected = "3 sums of 2 columns")]
    fn the_number_of_sums_is_checked() {
        let a = Matrix::new(&[0.0; 6], 3, 2);
        let b = Matrix::new(&[0.0; 15], 3, 5);
        outer_products(
            MatrixMut::new(&mut [0.0; 10], 2, 5),
            WriteMode::Add,
            a,
            b,
            &mut [0.0; 3],
            Dtype::Model,
        );
    }

    #[test]
    #[should_panic(expected = "(3 x 2) and (4 x 5) into (2 x 5)")]
    fn mismatched_shapes_are_refused() {
        let a = Matrix::new(&[0.0; 6], 3, 2);
        let b = Matrix::new(&[0.0; 20], 4, 5);
        outer_products(
            MatrixMut::new(&mut [0.0; 10], 2, 5),
            WriteMode::Add,
            a,
            b,
            &mut [],
            Dtype::Model,
        );
    }
}
