//! The product of matrices by all threads.
//!
//! `gemm` shares a product among the threads, and is at its best where the rows of both sides are slices. A side whose columns
//! are slices is copied first, by all threads, block by block of the depth.

use std::mem;
use std::ops::Range;

use super::panel::Panel;
use super::parallel::{for_each, rows_per_task};
use super::transpose::transpose;
use super::{Buffer, Matrix, MatrixMut, Pooled, Real};
use crate::simd::{Into, Threads, call::sum, product};

/// Numbers that are copied at a time: a part of a third cache.
const COPY: usize = 1 << 20;
/// Rows or columns that are copied at a time. The depth is then what `gemm` multiplies at a time, or more.
const SIDE: usize = 2048;
/// The side of the squares that are copied: whole lines of the cache, several in a row.
const SQUARE: usize = 64;
/// Numbers of a row that are added one after another: so few that rounding errors stay small.
const TERMS: usize = 4096;

/// Of columns that are no multiple of this `gemm` makes a copy, in memory that it asks the system for: what is left of them is
/// filled up with zeros here.
const LANES: usize = 16;

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

impl<E: Pooled> Start<'_, E> {
    /// [`write`](Self::write), by all threads.
    fn write_by_all(self, to: MatrixMut<'_, E>) -> Into {
        if let Self::Row(_) = self {
            let some = rows_per_task(to.cols());
            for_each(to.row_chunks(some), |to| {
                self.write(to);
            });
            return Into::Add;
        }
        self.write(to)
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
    multiply_and_sum(to, start, a, b, &mut []);
}

/// [`multiply`], which also adds the sum of every row of `a` to its element of `sums`, if there are any: what is copied
/// anyway is not read again for that.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn multiply_and_sum<E: Pooled>(
    mut to: MatrixMut<'_, E>,
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    sums: &mut [E],
) {
    let (rows, depth, cols) = (to.rows(), a.cols(), to.cols());
    assert!(
        a.rows() == rows && b.rows() == depth && b.cols() == cols,
        "({} x {depth}) times ({} x {}) into ({rows} x {cols})",
        a.rows(),
        b.rows(),
        b.cols()
    );
    assert!(
        sums.is_empty() || sums.len() == rows,
        "{} sums of {rows} rows",
        sums.len()
    );
    let into = start.write_by_all(to.reborrow());
    // All of what is not copied.
    let height = if a.has_row_slices() { rows } else { SIDE };
    let width = if b.has_row_slices() { cols } else { SIDE };
    let (height, width) = (height.max(1), width.max(1));
    // Rows without a number add nothing.
    let sums = if depth == 0 { &mut [] } else { sums };
    // Without columns there is nothing to multiply, but there are sums.
    if cols == 0 {
        Rows::of(a, sums);
    }
    let mut sums = sums.chunks_mut(height);
    for (i, to) in to.row_chunks(height).enumerate() {
        let a = a.some_rows(i * height..i * height + to.rows());
        let mut sums = sums.next().unwrap_or_default();
        for (j, to) in to.col_chunks(width).enumerate() {
            let b = b.some_cols(j * width..j * width + to.cols());
            multiply_block(to, into, a, b, mem::take(&mut sums));
        }
    }
}

/// `to = a b`, or `to += a b`, with at most [`SIDE`] rows of `a` and columns of `b` to copy.
fn multiply_block<E: Pooled>(
    mut to: MatrixMut<'_, E>,
    mut into: Into,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    sums: &mut [E],
) {
    let depth = a.cols();
    let at_once = match (a.has_row_slices(), b.has_row_slices()) {
        (true, true) => depth.max(1),
        (false, true) => COPY / a.rows(),
        (true, false) => COPY / b.cols(),
        (false, false) => COPY / a.rows().max(b.cols()),
    };
    // Without any depth there is still a result.
    for first in (0..depth.max(1)).step_by(at_once) {
        let some = first..depth.min(first + at_once);
        let a = Rows::of(a.some_cols(some.clone()), sums);
        let b = Rows::of(b.some_rows(some), &mut []);
        add_product(to.reborrow(), into, a.matrix(), b.matrix());
        into = Into::Add;
    }
}

/// `to = a b`, or `to += a b`, where all rows are slices.
fn add_product<E: Pooled>(to: MatrixMut<'_, E>, into: Into, a: Matrix<'_, E>, b: Matrix<'_, E>) {
    let whole = b.cols() / LANES * LANES;
    let (left, mut right) = to.split_cols(whole);
    let whole_columns = b.some_cols(0..whole);
    product(left, into, E::ONE, a, whole_columns, Threads::All);
    let few = b.cols() - whole;
    if few == 0 {
        return;
    }
    let mut columns = Buffer::zeros(b.rows() * LANES);
    for (i, to) in columns.chunks_mut(LANES).enumerate() {
        to[..few].copy_from_slice(&b.row(i)[whole..]);
    }
    let mut sums = Buffer::stale(a.rows() * LANES);
    let columns = Matrix::new(&columns, b.rows(), LANES);
    let to = MatrixMut::new(&mut sums, a.rows(), LANES);
    product(to, Into::Overwrite, E::ONE, a, columns, Threads::All);
    for (i, sums) in sums.chunks(LANES).enumerate() {
        for (to, &sum) in right.row_mut(i).iter_mut().zip(sums) {
            *to = match into {
                Into::Overwrite => sum,
                Into::Add => *to + sum,
            };
        }
    }
}

/// A matrix whose rows are slices.
enum Rows<'a, E: Pooled> {
    Given(Matrix<'a, E>),
    Copied(Panel<E>),
}

impl<'a, E: Pooled> Rows<'a, E> {
    /// The matrix itself, or a copy by all threads. Its rows or its columns are slices. The sum of each row is added to its
    /// element of `sums`, if there are any.
    fn of(x: Matrix<'a, E>, sums: &mut [E]) -> Self {
        let some = rows_per_task(x.cols()).next_multiple_of(SQUARE);
        let mut sums = sums.chunks_mut(some);
        let mut some_sums = || sums.next().unwrap_or_default();
        if x.has_row_slices() {
            let parts = (0..x.rows()).step_by(some).map(|i| (i, some_sums()));
            let parts = parts.filter(|(_, sums)| !sums.is_empty());
            for_each(parts, |(i, sums)| add_totals(sums, |row| x.row(i + row)));
            return Self::Given(x);
        }
        let mut copy = Panel::new(x.rows(), x.cols());
        let parts = copy.write().row_chunks(some);
        let parts = parts.enumerate().map(|(i, to)| (i, to, some_sums()));
        for_each(parts, |(i, mut to, sums)| {
            let x = x.some_rows(i * some..i * some + to.rows());
            for (j, to) in to.reborrow().col_chunks(SQUARE).enumerate() {
                let columns = j * SQUARE..j * SQUARE + to.cols();
                transpose(x.some_cols(columns).transposed(), to);
            }
            add_totals(sums, |row| to.row(row));
        });
        Self::Copied(copy)
    }

    fn matrix(&self) -> Matrix<'_, E> {
        match self {
            Self::Given(matrix) => *matrix,
            Self::Copied(copy) => copy.read(),
        }
    }
}

/// Adds the numbers of each row to its element of `sums`, with errors that grow slowly with their number.
fn add_totals<'a, E: Real>(sums: &mut [E], row: impl Fn(usize) -> &'a [E]) {
    for (i, to) in sums.iter_mut().enumerate() {
        *to = row(i)
            .chunks(TERMS)
            .fold(*to, |total, terms| total + sum(terms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{assert_near, noise, same_for_all_threads};

    /// Sizes around those of vectors, blocks and copies.
    const SHAPES: [[usize; 3]; 14] = [
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
        [2050, 600, 3],
        [5, 514, 2049],
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
    fn rows_are_summed_once() {
        for [m, k, n] in SHAPES {
            let (a, b, given) = (noise(m * k, 1), noise(k * n, 2), noise::<f32>(m, 3));
            for (a, b) in [
                (Matrix::new(&a, m, k), Matrix::new(&b, k, n)),
                // Both are copied, more columns than fit in several blocks.
                (
                    Matrix::new(&a, k, m).transposed(),
                    Matrix::new(&b, n, k).transposed(),
                ),
            ] {
                let mut sums = given.clone();
                let mut to = vec![0.0; m * n];
                let to = MatrixMut::new(&mut to, m, n);
                multiply_and_sum(to, Start::Zero, a, b, &mut sums);
                let want: Vec<f64> = (0..m)
                    .map(|i| {
                        f64::from(given[i]) + (0..k).map(|j| f64::from(a.get(i, j))).sum::<f64>()
                    })
                    .collect();
                // Up to k roundings of partial sums of at most about 2 √k, by half an epsilon, 6e-8, of these: as random as
                // they are, they come to √k times one of them, which is k times 6e-8.
                let tolerance = 6e-8 * (k as f64 + 1.0);
                assert_near(&sums, &want, tolerance, &format!("{m} x {k} x {n}"));
            }
        }
    }

    #[test]
    fn many_numbers_lose_little() {
        // Added one after another, they end 4% off.
        let depth = 1 << 20;
        let (a, mut product, mut sums) = (vec![0.1_f32; depth], [0.0], [0.0]);
        let row = Matrix::new(&a, 1, depth);
        let to = MatrixMut::new(&mut product, 1, 1);
        multiply_and_sum(to, Start::Zero, row, row.transposed(), &mut sums);
        let want = depth as f64 * f64::from(0.1_f32);
        assert!((f64::from(sums[0]) / want - 1.0).abs() < 1e-5, "{sums:?}");
    }

    #[test]
    fn threads_do_not_change_a_bit() {
        let [m, k, n] = [700, 600, 200];
        let (a, b) = (noise::<f32>(m * k, 1), noise::<f32>(k * n, 2));
        let (rows, columns) = (Matrix::new(&a, m, k), Matrix::new(&a, k, m).transposed());
        for a in [rows, columns] {
            same_for_all_threads(|| {
                let (mut to, mut sums) = (vec![0.5; m * n], vec![0.5; m]);
                let to_mut = MatrixMut::new(&mut to, m, n);
                multiply_and_sum(to_mut, Start::Given, a, Matrix::new(&b, k, n), &mut sums);
                (to, sums)
            });
        }
    }

    #[test]
    #[should_panic(expected = "3 sums of 2 rows")]
    fn there_is_a_sum_for_every_row() {
        let (a, b) = (Matrix::new(&[0.0; 6], 2, 3), Matrix::new(&[0.0; 15], 3, 5));
        let to = &mut [0.0; 10];
        multiply_and_sum(MatrixMut::new(to, 2, 5), Start::Zero, a, b, &mut [0.0; 3]);
    }

    #[test]
    #[should_panic(expected = "(2 x 3) times (4 x 5) into (2 x 5)")]
    fn shapes_must_fit() {
        let (a, b) = (Matrix::new(&[0.0; 6], 2, 3), Matrix::new(&[0.0; 20], 4, 5));
        multiply(MatrixMut::new(&mut [0.0; 10], 2, 5), Start::Zero, a, b);
    }
}
