//! Sums over the rows of a matrix: gradients of a vector that was added to every row, or multiplied with it.

use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, Pooled, Real};
use crate::simd::{Kernel, Vector, run, slice};

/// The number of rows of `width` that are added one after another: enough to make the sums small beside the rows, and few enough
/// to keep rounding errors small.
pub(super) fn rows_per_sum(width: usize) -> usize {
    rows_per_task(width).clamp(64, 512)
}

/// `to += Σ rows of x`. PyTorch: `to += x.sum(0)`.
///
/// Chunks of rows are summed first, then chunks of those sums, and so on. The order depends on the shape only. The error grows
/// with the logarithm of the number of chunks.
///
/// # Panics
/// If `to` has not the width of `x`, or the elements of a row are not contiguous.
#[track_caller]
pub(super) fn add_column_sums<E: Pooled>(x: Matrix<'_, E>, to: &mut [E]) {
    let width = x.cols();
    assert_eq!(to.len(), width, "the sums of {width} columns");
    let chunk = rows_per_sum(width);
    if x.rows() <= chunk || width == 0 {
        return run(AddRows { x, to });
    }
    let chunks = x.rows().div_ceil(chunk);
    let mut partial = Buffer::uninit(chunks * width);
    let sums = partial.chunks_mut(width).enumerate();
    for_each(sums, |(index, to): (usize, &mut [E])| {
        let rows = index * chunk..x.rows().min((index + 1) * chunk);
        to.fill(E::ZERO);
        run(AddRows {
            x: x.some_rows(rows),
            to,
        });
    });
    add_column_sums(Matrix::new(&partial, chunks, width), to);
}

struct AddRows<'a, E> {
    x: Matrix<'a, E>,
    to: &'a mut [E],
}

impl<E: Real> Kernel for AddRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        for row in 0..self.x.rows() {
            slice::axpy::<V>(E::ONE, self.x.row(row), self.to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{
        Absolute, LENGTHS, assert_close, noise, on_every_isa, same_for_all_threads,
    };

    #[test]
    fn rows_are_added_to_the_current_sums() {
        on_every_isa(|isa| {
            for width in LENGTHS {
                for rows in [0, 1, 2, 63, 64, 65, 1025, 1100] {
                    let wide: Vec<f32> = noise(rows * (width + 1), 1);
                    let x = Matrix::strided(&wide, rows, width, width + 1, 1);
                    let start: Vec<f32> = noise(width, 2);
                    let mut got = start.clone();
                    add_column_sums(x, &mut got);
                    let want: Vec<f64> = (0..width)
                        .map(|j| {
                            let column = (0..rows).map(|i| f64::from(x.get(i, j)));
                            f64::from(start[j]) + column.sum::<f64>()
                        })
                        .collect();
                    // A walk of 1100 roundings of sums of about 20.
                    assert_close(
                        format!("{rows} x {width} on {isa}"),
                        &got,
                        &want,
                        Absolute(1e-4),
                    );
                }
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x: Vec<f32> = noise(5000 * 33, 1);
        same_for_all_threads(|| {
            let mut sums = vec![0.5; 33];
            add_column_sums(Matrix::new(&x, 5000, 33), &mut sums);
            sums
        });
    }

    #[test]
    fn sums_of_many_rows_are_accurate() {
        // Sequential addition has an error of 4%.
        let rows = 1 << 20;
        let x = vec![0.1_f32; rows];
        let mut sum = [0.0];
        add_column_sums(Matrix::new(&x, rows, 1), &mut sum);
        let want = rows as f64 * f64::from(0.1_f32);
        assert!((f64::from(sum[0]) / want - 1.0).abs() < 1e-5, "{sum:?}");
    }
}
