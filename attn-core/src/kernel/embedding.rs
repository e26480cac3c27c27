//! Rows of a table by index, and the derivative.
//!
//! PyTorch: `torch.nn.functional.embedding(ids, table)`.

use super::compiled::compiled;
use super::index::{OutOfRange, check};
use super::parallel::{SMALL, for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};
use crate::simd::{Kernel, Vector, run, slice};

/// The columns of the table that one thread adds to: a few cache lines.
const COLUMNS: usize = 64;

compiled! {
    Embedding:

    /// Row `i` of `to [n, width]` is row `ids[i]` of `table [count, width]`.
    ///
    /// # Errors
    /// If an id is not below `count`. Nothing is written then.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(
        ids: &[usize],
        table: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) -> Result<(), OutOfRange> {
        assert_shapes(ids, to.rows(), to.cols(), table.cols());
        check(ids, table.rows())?;
        let chunk = rows_per_task(table.cols());
        let parts = to.row_chunks(chunk).zip(ids.chunks(chunk));
        for_each(parts, |(mut to, ids)| {
            for (i, &id) in ids.iter().enumerate() {
                to.row_mut(i).copy_from_slice(table.row(id));
            }
        });
        Ok(())
    }

    /// Adds row `i` of `d_y [n, width]` to row `ids[i]` of `d_table [count, width]`.
    ///
    /// Each thread owns some columns and processes all ids, so that repeated ids are added in order.
    ///
    /// # Errors
    /// If an id is not below `count`. Nothing is added then.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn backward<E>(
        ids: &[usize],
        d_y: Matrix<'_, E>,
        d_table: MatrixMut<'_, E>,
    ) -> Result<(), OutOfRange> {
        let width = d_table.cols();
        assert_shapes(ids, d_y.rows(), d_y.cols(), width);
        check(ids, d_table.rows())?;
        let columns = if ids.len() * width <= SMALL {
            width.max(1)
        } else {
            COLUMNS
        };
        let parts = d_table.col_chunks(columns).enumerate();
        for_each(parts, |(index, d_table)| {
            let start = index * columns;
            run(Scatter {
                ids,
                d_y: d_y.some_cols(start..start + d_table.cols()),
                d_table,
            });
        });
        Ok(())
    }
}

struct Scatter<'a, E> {
    ids: &'a [usize],
    d_y: Matrix<'a, E>,
    d_table: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Scatter<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for (i, &id) in self.ids.iter().enumerate() {
            slice::axpy::<V>(E::ONE, self.d_y.row(i), self.d_table.row_mut(id));
        }
    }
}

#[track_caller]
fn assert_shapes(ids: &[usize], rows: usize, cols: usize, width: usize) {
    assert!(
        rows == ids.len() && cols == width,
        "{} rows of {width} numbers are not ({rows} x {cols})",
        ids.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    fn ids(len: usize, count: usize) -> Vec<usize> {
        // Repeated, and out of order.
        (0..len).map(|i| i * i * 7 % count).collect()
    }

    fn gathered(ids: &[usize], table: &[f32], count: usize) -> Vec<f32> {
        let width = table.len() / count;
        let mut to = vec![f32::NAN; ids.len() * width];
        let view = MatrixMut::new(&mut to, ids.len(), width);
        forward(ids, Matrix::new(table, count, width), view).unwrap();
        to
    }

    fn scattered(ids: &[usize], d_y: &[f32], count: usize) -> Vec<f32> {
        let width = d_y.len() / ids.len();
        let mut d_table = vec![1.0; count * width];
        let to = MatrixMut::new(&mut d_table, count, width);
        backward(ids, Matrix::new(d_y, ids.len(), width), to).unwrap();
        d_table
    }

    #[test]
    fn rows_are_gathered_and_gradients_scattered() {
        on_every_isa(|isa| {
            for (len, width) in LENGTHS[1..]
                .iter()
                .flat_map(|&w| [(1, w), (50, w), (700, w)])
            {
                let count = 13;
                let ids = ids(len, 13);
                let table = noise::<f32>(count * width, 1);
                for (to, &id) in gathered(&ids, &table, count).chunks(width).zip(&ids) {
                    assert_eq!(
                        to,
                        &table[id * width..][..width],
                        "{len} x {width} on {isa}"
                    );
                }
                // Sums of these integers are exact.
                let d_y: Vec<f32> = (0..len * width).map(|i| (i % 19) as f32).collect();
                let mut want = vec![1.0; count * width];
                for (row, &id) in d_y.chunks(width).zip(&ids) {
                    for (j, d) in row.iter().enumerate() {
                        want[id * width + j] += d;
                    }
                }
                assert_eq!(
                    scattered(&ids, &d_y, count),
                    want,
                    "{len} x {width} on {isa}"
                );
            }
        });
    }

    #[test]
    fn an_unknown_id_is_an_error_and_changes_nothing() {
        let mut to = [7.0_f32; 4];
        let table = [0.0; 6];
        let error = forward(
            &[2, 3],
            Matrix::new(&table, 3, 2),
            MatrixMut::new(&mut to, 2, 2),
        );
        let want = OutOfRange {
            position: 1,
            index: 3,
            count: 3,
        };
        assert_eq!(error, Err(want));
        assert_eq!(to, [7.0; 4]);
        let mut d_table = [7.0_f32; 6];
        let error = backward(
            &[2, 3],
            Matrix::new(&to, 2, 2),
            MatrixMut::new(&mut d_table, 3, 2),
        );
        assert_eq!(error, Err(want));
        assert_eq!(d_table, [7.0; 6]);
    }

    #[test]
    fn empty_tables_and_ids_are_supported() {
        let table = Matrix::new(&[1.0_f32; 6], 3, 2);
        assert_eq!(forward(&[], table, MatrixMut::new(&mut [], 0, 2)), Ok(()));
        let narrow = Matrix::new(&[0.0_f32; 0], 3, 0);
        let to = MatrixMut::new(&mut [], 2, 0);
        assert_eq!(forward(&[0, 2], narrow, to), Ok(()));
        let d_y = Matrix::new(&[0.0_f32; 0], 2, 0);
        let to = MatrixMut::new(&mut [], 3, 0);
        assert_eq!(backward(&[0, 2], d_y, to), Ok(()));
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let ids = ids(700, 13);
        let table = noise::<f32>(13 * 300, 1);
        let d_y = noise::<f32>(700 * 300, 2);
        same_for_all_threads(|| (gathered(&ids, &table, 13), scattered(&ids, &d_y, 13)));
    }
}
