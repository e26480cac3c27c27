//! The product of matrices by all threads.
//!
//! A task computes some columns of the result: it copies as many columns of the right side, block by block of the depth,
//! to where they lie side by side, whichever way they lie in memory, and multiplies blocks of rows of the left side with
//! the copy, which stays in the cache. Nothing is packed a second time, no thread waits for another before the end, and
//! what a row of the result starts with is written just before it is added to.

use std::ops::Range;

use super::parallel::for_each;
use super::transpose::transpose;
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Into, Threads, product};

/// Columns of a task: a multiple of the columns that any of `gemm`'s kernels computes at once.
const STRIP: usize = 64;
/// How much of the depth is multiplied at a time. With [`STRIP`] columns it takes an eighth of a second cache.
const DEPTH: usize = 512;
/// Rows of a block: as many as `gemm` multiplies with a matrix without a copy of it.
const ROWS: usize = 48;
/// Tasks that keep the threads of a desktop busy; where the columns give fewer, the rows are divided too ...
const TASKS: usize = 16;
/// ... unless so few of them would make the copy of the columns expensive.
const ROWS_PER_TASK: usize = 6 * ROWS;
/// Multiplications that are not worth another task: some ten microseconds.
const SMALL: usize = 1 << 19;

/// What the result starts with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Start<'a, E> {
    /// Nothing: whatever is there is overwritten.
    Zero,
    /// What is there.
    Given,
    /// These numbers, in every row.
    Row(&'a [E]),
}

impl<E: Copy> Start<'_, E> {
    /// What some of the columns start with.
    pub(super) fn of_cols(self, cols: Range<usize>) -> Self {
        match self {
            Self::Row(numbers) => Self::Row(&numbers[cols]),
            same => same,
        }
    }

    /// Writes it, and says what a product has to do with it.
    pub(super) fn write(self, mut to: MatrixMut<'_, E>) -> Into {
        match self {
            Self::Zero => Into::Overwrite,
            Self::Given => Into::Add,
            Self::Row(numbers) => {
                (0..to.rows()).for_each(|i| to.row_mut(i).copy_from_slice(numbers));
                Into::Add
            }
        }
    }
}

impl<E> From<Into> for Start<'_, E> {
    fn from(into: Into) -> Self {
        match into {
            Into::Overwrite => Self::Zero,
            Into::Add => Self::Given,
        }
    }
}

/// `to = start + a b`
///
/// An element is summed in an order that the shapes alone decide.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn multiply<E: Pooled>(
    to: MatrixMut<'_, E>,
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
) {
    let (rows, depth, cols) = (to.rows(), a.cols(), to.cols());
    assert!(
        a.rows() == rows && b.rows() == depth && b.cols() == cols,
        "({} x {depth}) times ({} x {}) into ({rows} x {cols})",
        a.rows(),
        b.rows(),
        b.cols()
    );
    let strip = STRIP * SMALL.div_ceil((rows * depth).max(1) * STRIP).max(1);
    let rows_per_task = (rows * cols.div_ceil(strip)).div_ceil(TASKS);
    let rows_per_task = rows_per_task.next_multiple_of(ROWS).max(ROWS_PER_TASK);
    let rows = to.row_chunks(rows_per_task).enumerate();
    let tasks = rows.flat_map(|(i, to)| {
        let strips = to.col_chunks(strip).enumerate();
        strips.map(move |(j, to)| (i * rows_per_task, j * strip, to))
    });
    for_each(tasks, |(row, col, to)| {
        let a = a.some_rows(row..row + to.rows());
        let cols = col..col + to.cols();
        multiply_strip(to, start.of_cols(cols.clone()), a, b.some_cols(cols));
    });
}

/// `to = start + a b`, by one thread.
fn multiply_strip<E: Pooled>(
    mut to: MatrixMut<'_, E>,
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
) {
    let (depth, cols) = (b.rows(), b.cols());
    let mut copy = Buffer::stale(DEPTH.min(depth) * cols);
    // Without any depth there is still a result.
    for first in (0..depth.max(1)).step_by(DEPTH) {
        let some = first..depth.min(first + DEPTH);
        let copy = &mut copy[..some.len() * cols];
        load(
            b.some_rows(some.clone()),
            MatrixMut::new(copy, some.len(), cols),
        );
        let b = Matrix::new(copy, some.len(), cols);
        for (i, mut to) in to.reborrow().row_chunks(ROWS).enumerate() {
            let rows = i * ROWS..i * ROWS + to.rows();
            let into = if first == 0 {
                start.write(to.reborrow())
            } else {
                Into::Add
            };
            let a = a.part(rows, some.clone());
            product(to, into, E::ONE, a, b, Threads::One);
        }
    }
}

/// `to = x`, whose rows or columns are slices.
fn load<E: Pooled>(x: Matrix<'_, E>, mut to: MatrixMut<'_, E>) {
    if x.has_row_slices() {
        (0..x.rows()).for_each(|i| to.row_mut(i).copy_from_slice(x.row(i)));
    } else {
        transpose(x.transposed(), to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{assert_near, noise, same_for_all_threads};

    /// Sizes around those of blocks, strips and tasks.
    const SHAPES: [[usize; 3]; 12] = [
        [0, 3, 2],
        [3, 0, 2],
        [2, 3, 0],
        [1, 1, 1],
        [47, 2, 63],
        [49, 5, 65],
        [48, 513, 64],
        [5, 1025, 1],
        [289, 700, 66],
        [600, 31, 130],
        [1, 600, 1000],
        [97, 511, 129],
    ];

    fn naive(start: f64, a: Matrix<'_, f32>, b: Matrix<'_, f32>, row: &[f32]) -> Vec<f64> {
        let mut to = Vec::new();
        for i in 0..a.rows() {
            for (j, &row) in row.iter().enumerate() {
                let products =
                    (0..a.cols()).map(|k| f64::from(a.get(i, k)) * f64::from(b.get(k, j)));
                to.push(start + f64::from(row) + products.sum::<f64>());
            }
        }
        to
    }

    #[test]
    fn it_is_the_product_plus_the_start() {
        for [m, k, n] in SHAPES {
            let (a, b, row) = (noise(m * k, 1), noise(k * n, 2), noise(n, 3));
            // Both sides as rows and as columns, inside of wider matrices where that matters.
            for (a, b) in [
                (Matrix::new(&a, m, k), Matrix::new(&b, k, n)),
                (
                    Matrix::new(&a, k, m).transposed(),
                    Matrix::new(&b, n, k).transposed(),
                ),
            ] {
                let none = vec![0.0; n];
                for (start, before, added, row) in [
                    (Start::Zero, f32::NAN, 0.0, &none),
                    (Start::Given, 2.0, 2.0, &none),
                    (Start::Row(&row), f32::NAN, 0.0, &row),
                ] {
                    let mut to = vec![before; m * (n + 1)];
                    multiply(MatrixMut::strided(&mut to, m, n, n + 1), start, a, b);
                    let got: Vec<f32> = to
                        .chunks(n + 1)
                        .flat_map(|row| &row[..n])
                        .copied()
                        .collect();
                    // Partial sums of so much noise stay below this, and each is rounded by at most 6e-8 of it.
                    let most = 2.0 * (k as f64).sqrt() + 3.0;
                    let tolerance = 6e-8 * (k as f64 + 2.0) * most;
                    assert_near(
                        &got,
                        &naive(added, a, b, row),
                        tolerance,
                        &format!("{m} x {k} x {n}"),
                    );
                    let margin = to.chunks(n + 1).map(|row| row[n]);
                    assert!(margin.into_iter().all(|x| x.to_bits() == before.to_bits()));
                }
            }
        }
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let [m, k, n] = [700, 600, 200];
        let (a, b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
        same_for_all_threads(|| {
            let mut to = vec![0.5; m * n];
            let to_mut = MatrixMut::new(&mut to, m, n);
            multiply(
                to_mut,
                Start::Given,
                Matrix::new(&a, m, k),
                Matrix::new(&b, k, n),
            );
            to
        });
    }

    #[test]
    #[should_panic(expected = "(2 x 3) times (4 x 5) into (2 x 5)")]
    fn shapes_must_fit() {
        let (a, b) = (Matrix::new(&[0.0; 6], 2, 3), Matrix::new(&[0.0; 20], 4, 5));
        multiply(MatrixMut::new(&mut [0.0; 10], 2, 5), Start::Zero, a, b);
    }
}
