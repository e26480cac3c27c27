//! Rows divided by their Euclidean length, and the derivative.
//!
//! ```text
//! y  = x / max(|x|, epsilon)
//! dx = (dy - y Σ y dy) / |x|        dx = dy / epsilon where |x| is at most epsilon
//! ```
//!
//! PyTorch: `torch.nn.functional.normalize(x, dim=-1, eps=epsilon)`.

use std::iter::repeat;

use super::compiled::compiled;
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::rows::{Sink, Source, for_chunks};
use super::{Matrix, MatrixMut, Real, assert_same_shape};
use crate::simd::slice::{self, load_any, store_any};
use crate::simd::{Kernel, Vector, WriteMode, run};

compiled! {
    L2Norm:

    /// Divides the rows of `x` by their Euclidean norms.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn forward<E>(x: Source<'_, E>, epsilon: E, y: Sink<'_, E>) {
        for_chunks(x, y, repeat(()), |x, y, ()| run(Forward { x, epsilon, y }));
    }

    /// The gradient of `x` from `d_y`, the gradient of the result.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    pub fn backward<E>(
        x: Matrix<'_, E>,
        epsilon: E,
        d_y: Matrix<'_, E>,
        d_x: MatrixMut<'_, E>,
        into: WriteMode,
    ) {
        assert_same_shape(x, d_y.rows(), d_y.cols());
        assert_same_shape(x, d_x.rows(), d_x.cols());
        let chunk = rows_per_task(x.cols());
        let parts = d_x.row_chunks(chunk).enumerate();
        for_each(parts, |(index, d_x)| {
            let rows = index * chunk..index * chunk + d_x.rows();
            run(Backward {
                x: x.some_rows(rows.clone()),
                epsilon,
                d_y: d_y.some_rows(rows),
                d_x,
                into,
            });
        });
    }
}

/// The norm of a row, or `None` if `epsilon` takes its place. The norm of a row with NaN is NaN.
#[inline(always)]
fn length<V: Vector<Element: Real>>(x: &[V::Element], epsilon: V::Element) -> Option<V::Element> {
    let mut length = [V::Element::ZERO];
    V::splat(slice::dot::<V>(x, x))
        .sqrt()
        .store_partial(&mut length);
    let is_short = length[0] <= epsilon;
    (!is_short).then_some(length[0])
}

struct Forward<'a, E> {
    x: Matrix<'a, E>,
    epsilon: E,
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
            let length = length::<V>(x, self.epsilon).unwrap_or(self.epsilon);
            let inverse = V::splat(E::ONE / length);
            for_lanes!(V, x.len(), [x], [y], {
                store_any(load_any::<V>(x) * inverse, y);
            });
        }
    }
}

struct Backward<'a, E> {
    x: Matrix<'a, E>,
    epsilon: E,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
    into: WriteMode,
}

impl<E: Real> Kernel for Backward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let x = self.x.row(i);
            let d_y = self.d_y.row(i);
            let d_x = self.d_x.row_mut(i);
            // `Σ y dy / |x|`, the factor of `x`.
            let (inverse, along) = match length::<V>(x, self.epsilon) {
                Some(length) => {
                    let inverse = E::ONE / length;
                    (inverse, slice::dot::<V>(x, d_y) * inverse * inverse)
                }
                None => (E::ONE / self.epsilon, E::ZERO),
            };
            let inverse = V::splat(inverse);
            let along = V::splat(-along);
            for_lanes!(V, x.len(), [x, d_y], [d_x], {
                let rest = load_any::<V>(x).mul_add(along, load_any(d_y));
                let old = match self.into {
                    WriteMode::Overwrite => V::zero(),
                    WriteMode::Add => load_any(d_x),
                };
                store_any(rest.mul_add(inverse, old), d_x);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    fn naive(x: &[f64], epsilon: f64) -> Vec<f64> {
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        x.iter().map(|x| x / length.max(epsilon)).collect()
    }

    fn normalized<E: crate::kernel::Kernels>(x: &[E], rows: usize, epsilon: E) -> Vec<E> {
        let cols = x.len() / rows;
        let mut y = vec![E::NAN; x.len()];
        forward(
            Matrix::new(x, rows, cols).into(),
            epsilon,
            MatrixMut::new(&mut y, rows, cols).into(),
        );
        y
    }

    #[test]
    fn rows_have_length_1() {
        on_every_isa(|isa| {
            for cols in LENGTHS[1..].iter().copied() {
                let x = noise::<f32>(3 * cols, 1);
                let want = wide(&x);
                let want: Vec<f64> = want.chunks(cols).flat_map(|x| naive(x, 1e-12)).collect();
                // Some roundings of numbers up to 1.
                let y = normalized(&x, 3, 1e-12);
                assert_close(format!("{cols} on {isa}"), &y, &want, Absolute(1e-6));
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        on_every_isa(|isa| {
            for cols in [1, 2, 7, 9, 33] {
                // One epsilon is shorter than all rows, the other is longer.
                for epsilon in [1e-12, 100.0] {
                    let x = noise::<f64>(cols, 1);
                    let weights = noise::<f64>(cols, 2);
                    let loss = |x: &[f64]| {
                        let y = naive(x, epsilon);
                        y.iter().zip(&weights).map(|(y, w)| y * w).sum()
                    };
                    let want = slopes(&x, loss);
                    for (into, before) in [(WriteMode::Overwrite, 0.0), (WriteMode::Add, 1.0)] {
                        let mut d_x = vec![1.0; cols];
                        backward(
                            Matrix::new(&x, 1, cols),
                            epsilon,
                            Matrix::new(&weights, 1, cols),
                            MatrixMut::new(&mut d_x, 1, cols),
                            into,
                        );
                        let want: Vec<f64> = want.iter().map(|d| before + d).collect();
                        // The error of the central differences.
                        assert_close(format!("{cols} on {isa}"), &d_x, &want, Absolute(1e-8));
                    }
                }
            }
        });
    }

    #[test]
    fn zeros_do_not_change_and_nan_stays_in_its_row() {
        let nan = f32::NAN;
        let y = normalized(&[0.0, 0.0, 3.0, 4.0, nan, 1.0], 3, 1e-12);
        assert_eq!(y[..2], [0.0; 2]);
        assert_close("3, 4", &y[2..4], &[0.6, 0.8], Absolute(1e-7));
        assert!(y[4..].iter().all(|y| y.is_nan()));
    }

    #[test]
    fn empty_matrices_are_supported() {
        let nothing = || Matrix::<f32>::new(&[], 0, 3);
        let empty = MatrixMut::new(&mut [], 0, 3);
        forward(nothing().into(), 1.0, empty.into());
        let d_x = MatrixMut::new(&mut [], 0, 3);
        backward(nothing(), 1.0, nothing(), d_x, WriteMode::Add);
        let x = Matrix::<f32>::new(&[], 3, 0);
        forward(x.into(), 1.0, MatrixMut::new(&mut [], 3, 0).into());
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(700 * 65, 1);
        same_for_all_threads(|| normalized(&x, 700, 1e-12));
    }
}
