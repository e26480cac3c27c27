//! Matrix products on all threads.
//!
//! Where those of [`packed`](super::packed) are not faster, `gemm` shares a product among the threads. It is fastest where the rows of both sides are
//! contiguous. A right side with contiguous columns is copied first, by all threads, one block of the depth at a time.

use std::ops::Range;

use super::packed::{Transposed, beats_gemm, multiply_packed};
use super::panel::Panel;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{Initial, Threads, WriteMode, product};

/// The numbers that are copied at a time: a part of a third-level cache.
pub(super) const COPY: usize = 1 << 20;
/// The columns that are copied at a time. The depth of a block is then at least the depth that `gemm` multiplies at a time.
const SIDE: usize = 2048;
/// The side of the squares that are copied: several whole cache lines per row.
const SQUARE: usize = 64;

/// `gemm` copies columns whose number is not a multiple of this, into memory that it requests from the system. So the remainder
/// is padded with zeros here.
const LANES: usize = 16;

/// The initial values of a result, to which products are added.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a, E> {
    /// Zeros: the old values are overwritten.
    Zero,
    /// The current values.
    Accumulate,
    /// This row, in every row: a bias for each column, or for each channel.
    Row(&'a [E]),
}

impl<'a, E> Start<'a, E> {
    /// A bias, if there is one.
    pub fn bias(bias: Option<&'a [E]>) -> Self {
        bias.map_or(Self::Zero, Self::Row)
    }
}

impl<E: Copy> Start<'_, E> {
    /// The start of a range of columns.
    pub(super) fn of_cols(self, cols: Range<usize>) -> Self {
        match self {
            Self::Row(numbers) => Self::Row(&numbers[cols]),
            same => same,
        }
    }

    /// Writes the initial values. Returns the mode in which the product is written.
    pub(super) fn write(self, mut to: MatrixMut<'_, E>) -> WriteMode {
        match self {
            Self::Zero => WriteMode::Overwrite,
            Self::Accumulate => WriteMode::Add,
            Self::Row(numbers) => {
                (0..to.rows()).for_each(|i| to.row_mut(i).copy_from_slice(numbers));
                WriteMode::Add
            }
        }
    }
}

impl<E: Pooled> Start<'_, E> {
    /// [`write`](Self::write), on all threads.
    fn write_parallel(self, to: MatrixMut<'_, E>) -> WriteMode {
        if let Self::Row(_) = self {
            let some = rows_per_task(to.cols());
            for_each(to.row_chunks(some), |to| {
                self.write(to);
            });
            return WriteMode::Add;
        }
        self.write(to)
    }
}

impl<E> From<WriteMode> for Start<'_, E> {
    fn from(into: WriteMode) -> Self {
        match into {
            WriteMode::Overwrite => Self::Zero,
            WriteMode::Add => Self::Accumulate,
        }
    }
}

impl<'a, E> From<Start<'a, E>> for Initial<'a, E> {
    fn from(start: Start<'a, E>) -> Self {
        match start {
            Start::Zero => Self::Zero,
            Start::Accumulate => Self::Old,
            Start::Row(numbers) => Self::OfColumns(numbers),
        }
    }
}

/// `to = start + a b`, where the rows of `a` are contiguous.
///
/// The order in which an element is summed depends on the shapes only.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub(super) fn multiply<E: Pooled>(
    mut to: MatrixMut<'_, E>,
    start: Start<'_, E>,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
) {
    let rows = to.rows();
    let depth = a.cols();
    let cols = to.cols();
    assert!(
        a.rows() == rows && b.rows() == depth && b.cols() == cols,
        "({} x {depth}) times ({} x {}) into ({rows} x {cols})",
        a.rows(),
        b.rows(),
        b.cols()
    );
    if beats_gemm(rows) {
        return match b.has_row_slices() {
            true => multiply_packed([to], start.into(), a, &b),
            false => multiply_packed([to], start.into(), a, &Transposed(b.transposed())),
        };
    }
    let into = start.write_parallel(to.reborrow());
    if b.has_row_slices() {
        return add_product(to, into, a, b, Threads::All);
    }
    for (i, to) in to.col_chunks(SIDE).enumerate() {
        let b = b.some_cols(i * SIDE..i * SIDE + to.cols());
        multiply_columns(to, into, a, b);
    }
}

/// `to = a b`, or `to += a b`, with at most [`SIDE`] columns of `b`, which are copied.
fn multiply_columns<E: Pooled>(
    mut to: MatrixMut<'_, E>,
    mut into: WriteMode,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
) {
    let depth = b.rows();
    // A depth of 0 has a result as well.
    for first in (0..depth.max(1)).step_by(COPY / b.cols()) {
        let some = first..depth.min(first + COPY / b.cols());
        let rows = copy(b.some_rows(some.clone()));
        add_product(
            to.reborrow(),
            into,
            a.some_cols(some),
            rows.read(),
            Threads::All,
        );
        into = WriteMode::Add;
    }
}

/// Copies a matrix with contiguous columns to contiguous rows, on all threads.
pub(super) fn copy<E: Pooled>(x: Matrix<'_, E>) -> Panel<E> {
    let some = rows_per_task(x.cols()).next_multiple_of(SQUARE);
    let mut copy = Panel::new(x.rows(), x.cols());
    let parts = copy.write().row_chunks(some).enumerate();
    for_each(parts, |(i, to)| {
        let x = x.some_rows(i * some..i * some + to.rows());
        for (j, to) in to.col_chunks(SQUARE).enumerate() {
            let columns = j * SQUARE..j * SQUARE + to.cols();
            transpose(x.some_cols(columns).transposed(), to);
        }
    });
    copy
}

/// `to = a b`, or `to += a b`, where all rows are contiguous.
pub(super) fn add_product<E: Pooled>(
    to: MatrixMut<'_, E>,
    into: WriteMode,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    threads: Threads,
) {
    let whole = b.cols() / LANES * LANES;
    let (left, mut right) = to.split_cols(whole);
    let whole_columns = b.some_cols(0..whole);
    product(left, into, E::ONE, a, whole_columns, threads);
    let few = b.cols() - whole;
    if few == 0 {
        return;
    }
    let mut columns = Buffer::zeros(b.rows() * LANES);
    for (i, to) in columns.chunks_mut(LANES).enumerate() {
        to[..few].copy_from_slice(&b.row(i)[whole..]);
    }
    let mut sums = Buffer::uninit(a.rows() * LANES);
    let columns = Matrix::new(&columns, b.rows(), LANES);
    let to = MatrixMut::new(&mut sums, a.rows(), LANES);
    product(to, WriteMode::Overwrite, E::ONE, a, columns, threads);
    for (i, sums) in sums.chunks(LANES).enumerate() {
        for (to, &sum) in right.row_mut(i).iter_mut().zip(sums) {
            *to = match into {
                WriteMode::Overwrite => sum,
                WriteMode::Add => *to + sum,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, assert_close, noise, on_every_isa, same_for_all_threads,
    };

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
    fn products_are_added_to_the_initial_values() {
        for shape in SHAPES {
            check(shape);
        }
    }

    /// With every start, and with contiguous rows and contiguous columns of the right side.
    fn check([m, k, n]: [usize; 3]) {
        let a = noise(m * k, 1);
        let b = noise(k * n, 2);
        let row = noise(n, 3);
        let none = vec![0.0; n];
        let a = Matrix::new(&a, m, k);
        for b in [Matrix::new(&b, k, n), Matrix::new(&b, n, k).transposed()] {
            for (start, before, added, row) in [
                (Start::Zero, f32::NAN, 0.0, &none),
                (Start::Accumulate, 2.0, 2.0, &none),
                (Start::Row(&row), f32::NAN, 0.0, &row),
            ] {
                let want = naive(added, a, b, row);
                // Partial sums of so much noise stay below this, and each is rounded by at most 6e-8 of it.
                let most = 2.0 * (k as f64).sqrt() + 3.0;
                let tolerance = 6e-8 * (k as f64 + 2.0) * most;
                on_every_isa(|isa| {
                    let mut to = vec![before; m * (n + 1)];
                    multiply(MatrixMut::strided(&mut to, m, n, n + 1), start, a, b);
                    let rows = to.chunks(n + 1).flat_map(|row| &row[..n]);
                    let got: Vec<f32> = rows.copied().collect();
                    let what = format!("{m} x {k} x {n} on {isa}");
                    assert_close(what, &got, &want, Absolute(tolerance));
                    let mut margin = to.chunks(n + 1).map(|row| row[n]);
                    assert!(margin.all(|x| x.to_bits() == before.to_bits()));
                });
            }
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let [m, k, n] = [700, 600, 200];
        let a = noise::<f32>(m * k, 1);
        let b = noise::<f32>(k * n, 2);
        let a = Matrix::new(&a, m, k);
        for b in [Matrix::new(&b, k, n), Matrix::new(&b, n, k).transposed()] {
            same_for_all_threads(|| {
                let mut to = vec![0.5; m * n];
                multiply(MatrixMut::new(&mut to, m, n), Start::Accumulate, a, b);
                to
            });
        }
    }

    #[test]
    #[should_panic(expected = "(2 x 3) times (4 x 5) into (2 x 5)")]
    fn mismatched_shapes_are_refused() {
        let a = Matrix::new(&[0.0; 6], 2, 3);
        let b = Matrix::new(&[0.0; 20], 4, 5);
        multiply(MatrixMut::new(&mut [0.0; 10], 2, 5), Start::Zero, a, b);
    }
}
