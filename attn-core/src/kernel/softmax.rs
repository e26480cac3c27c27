//! The softmax of rows, and its derivative.
//!
//! ```text
//! y[i] = exp(x[i] - max(x)) / Σ exp(x - max(x))
//! dx   = y (dy - Σ y dy)
//! ```
//!
//! The maximum is subtracted first: it changes no quotient, and no power overflows. PyTorch: `torch.softmax(x, -1)`, also for
//! rows with NaN or infinities: -∞ becomes 0. A row of -∞ only, or with +∞ or NaN, becomes NaN.

use std::iter::repeat;

use super::compiled::compiled;
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::rows::{Sink, Source, for_chunks};
use super::{Matrix, MatrixMut, Real, assert_same_shape};
use crate::simd::slice::{self, load_any, load_filled, store_any};
use crate::simd::{Kernel, Vector, math, run};

compiled! {
    Softmax:

    /// `y = softmax(x)`, row by row.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn forward<E>(x: Source<'_, E>, y: Sink<'_, E>) {
        for_chunks(x, y, repeat(()), |x, y, ()| run(Forward { x, y }));
    }

    /// Adds the derivative to `d_x`, from the result `y` and its gradient.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn backward<E>(y: Matrix<'_, E>, d_y: Matrix<'_, E>, d_x: MatrixMut<'_, E>) {
        assert_same_shape(y, d_y.rows(), d_y.cols());
        assert_same_shape(y, d_x.rows(), d_x.cols());
        let chunk = rows_per_task(y.cols());
        let parts = d_x.row_chunks(chunk).enumerate();
        for_each(parts, |(index, d_x)| {
            let rows = index * chunk..index * chunk + d_x.rows();
            run(Backward {
                y: y.some_rows(rows.clone()),
                d_y: d_y.some_rows(rows),
                d_x,
            });
        });
    }
}

struct Forward<'a, E> {
    x: Matrix<'a, E>,
    y: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Forward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let x = self.x.row(i);
            let y = self.y.row_mut(i);
            let max = V::splat(slice::max::<V>(x));
            // Two alternating sums, so that an addition need not wait for the previous one.
            let mut sums = [V::zero(); 2];
            let to = &mut *y;
            for_lanes!(V, x.len(), [x], [to], {
                let power = math::exp_of_nonpositive(load_filled::<V>(x, -E::INFINITY) - max);
                sums = [sums[1], sums[0] + power];
                store_any(power, to);
            });
            slice::scale::<V>(E::ONE / (sums[0] + sums[1]).reduce_sum(), y);
        }
    }
}

struct Backward<'a, E> {
    y: Matrix<'a, E>,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Backward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.y.rows() {
            let y = self.y.row(i);
            let d_y = self.d_y.row(i);
            let d_x = self.d_x.row_mut(i);
            let mean = V::splat(slice::dot::<V>(y, d_y));
            for_lanes!(V, y.len(), [y, d_y], [d_x], {
                let slope = load_any::<V>(d_y) - mean;
                store_any(load_any::<V>(y).mul_add(slope, load_any(d_x)), d_x);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    fn naive(row: &[f64]) -> Vec<f64> {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
        row.iter().map(|x| (x - max).exp() / sum).collect()
    }

    fn softmax<E: crate::kernel::Kernels>(x: &[E], rows: usize) -> Vec<E> {
        let cols = x.len() / rows;
        let mut y = vec![E::NAN; x.len()];
        forward(
            Matrix::new(x, rows, cols).into(),
            MatrixMut::new(&mut y, rows, cols).into(),
        );
        y
    }

    #[test]
    fn rows_sum_to_1() {
        on_every_isa(|isa| {
            for cols in LENGTHS[1..].iter().copied() {
                let x: Vec<f32> = noise(3 * cols, 1).iter().map(|x: &f32| 9.0 * x).collect();
                let want: Vec<f64> = wide(&x).chunks(cols).flat_map(naive).collect();
                // Weights of at most 1, from differences of up to 18 that are rounded by 1e-6.
                assert_close(
                    format!("{cols} on {isa}"),
                    &softmax(&x, 3),
                    &want,
                    Absolute(3e-6),
                );
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        on_every_isa(|isa| {
            for cols in [1, 2, 7, 9, 33] {
                let x = noise::<f64>(cols, 1);
                let weights = noise::<f64>(cols, 2);
                let y = softmax(&x, 1);
                let mut d_x = vec![1.0; cols];
                backward(
                    Matrix::new(&y, 1, cols),
                    Matrix::new(&weights, 1, cols),
                    MatrixMut::new(&mut d_x, 1, cols),
                );
                let loss = |x: &[f64]| naive(x).iter().zip(&weights).map(|(y, w)| y * w).sum();
                let want = slopes(&x, loss).into_iter().map(|d| 1.0 + d);
                // The error of the central differences.
                assert_close(
                    format!("{cols} on {isa}"),
                    &d_x,
                    &want.collect::<Vec<_>>(),
                    Absolute(1e-9),
                );
            }
        });
    }

    #[test]
    fn numbers_that_are_not_finite_stay_in_their_row() {
        let inf = f32::INFINITY;
        let nan = f32::NAN;
        let rows = [
            [0.0, -inf, 0.0],
            [-inf; 3],
            [0.0, inf, 0.0],
            [0.0, nan, 1.0],
            [3e38, 3e38, -3e38],
        ];
        let y = softmax(rows.as_flattened(), 5);
        assert_eq!(y[..3], [0.5, 0.0, 0.5]);
        assert!(y[3..12].iter().all(|y| y.is_nan()), "{y:?}");
        assert_eq!(y[12..], [0.5, 0.5, 0.0]);
    }

    #[test]
    fn empty_matrices_are_supported() {
        for (rows, cols) in [(0, 3), (3, 0)] {
            let x = Matrix::<f32>::new(&[], rows, cols);
            forward(x.into(), MatrixMut::new(&mut [], rows, cols).into());
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(700 * 65, 1);
        same_for_all_threads(|| softmax(&x, 700));
    }
}
