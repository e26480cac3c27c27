//! Rows divided by their Euclidean length, and the derivative.
//!
//! ```text
//! y  = x / max(|x|, epsilon)
//! dx = (dy - y Σ y dy) / |x|        dx = dy / epsilon where |x| is at most epsilon
//! ```
//!
//! PyTorch: `torch.nn.functional.normalize(x, dim=-1, eps=epsilon)`.

use std::iter::repeat;

use super::axis::{Axis, for_each_part, for_some_columns};
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

compiled! {
    L2NormAlong:

    /// Divides the numbers along an axis by their Euclidean norm. PyTorch: `torch.nn.functional.normalize(x, dim=1, eps=epsilon)`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn forward_along<E>(x: &[E], axis: Axis, epsilon: E, y: &mut [E]) {
        axis.assert_equal_lengths(&[x.len(), y.len()]);
        if axis.inner == 1 {
            let y = MatrixMut::new(y, axis.outer, axis.len);
            return forward(Matrix::new(x, axis.outer, axis.len).into(), epsilon, y.into());
        }
        for_each_part(axis, axis.len * axis.inner, y, |o, y| {
            let x = Matrix::new(&x[axis.block(o)], axis.len, axis.inner);
            for_some_columns(MatrixMut::new(y, axis.len, axis.inner), |cols, y| {
                run(ForwardColumns { x: x.some_cols(cols), epsilon, y });
            });
        });
    }

    /// The derivative of [`forward_along`].
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn backward_along<E>(
        x: &[E],
        axis: Axis,
        epsilon: E,
        d_y: &[E],
        d_x: &mut [E],
        into: WriteMode,
    ) {
        axis.assert_equal_lengths(&[x.len(), d_y.len(), d_x.len()]);
        if axis.inner == 1 {
            let [x, d_y] = [x, d_y].map(|x| Matrix::new(x, axis.outer, axis.len));
            let d_x = MatrixMut::new(d_x, axis.outer, axis.len);
            return backward(x, epsilon, d_y, d_x, into);
        }
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let [x, d_y] = [x, d_y].map(|x| Matrix::new(&x[axis.block(o)], axis.len, axis.inner));
            for_some_columns(MatrixMut::new(d_x, axis.len, axis.inner), |cols, d_x| {
                let [x, d_y] = [x, d_y].map(|x| x.some_cols(cols.clone()));
                run(BackwardColumns { x, epsilon, d_y, d_x, into });
            });
        });
    }
}

/// The reciprocals of norms, or of `epsilon` in their place, from the sums of squares; and where `epsilon` is in the place of a norm.
#[inline(always)]
fn inverse<V: Vector<Element: Real>>(squares: V, epsilon: V::Element) -> (V, V::Mask) {
    let epsilon = V::splat(epsilon);
    let length = squares.sqrt();
    let is_short = length.le(epsilon);
    let one = V::splat(V::Element::ONE);
    (one / V::select(is_short, epsilon, length), is_short)
}

struct ForwardColumns<'a, E> {
    x: Matrix<'a, E>,
    epsilon: E,
    y: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for ForwardColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for start in (0..self.x.cols()).step_by(V::LANES) {
            let lanes = start..self.x.cols().min(start + V::LANES);
            let mut squares = V::zero();
            for l in 0..self.x.rows() {
                let x = load_any::<V>(&self.x.row(l)[lanes.clone()]);
                squares = x.mul_add(x, squares);
            }
            let (inverse, _) = inverse(squares, self.epsilon);
            for l in 0..self.x.rows() {
                let x = load_any::<V>(&self.x.row(l)[lanes.clone()]);
                store_any(x * inverse, &mut self.y.row_mut(l)[lanes.clone()]);
            }
        }
    }
}

struct BackwardColumns<'a, E> {
    x: Matrix<'a, E>,
    epsilon: E,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
    into: WriteMode,
}

impl<E: Real> Kernel for BackwardColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for start in (0..self.x.cols()).step_by(V::LANES) {
            let lanes = start..self.x.cols().min(start + V::LANES);
            let mut squares = V::zero();
            let mut products = V::zero();
            for l in 0..self.x.rows() {
                let x = load_any::<V>(&self.x.row(l)[lanes.clone()]);
                squares = x.mul_add(x, squares);
                products = x.mul_add(load_any(&self.d_y.row(l)[lanes.clone()]), products);
            }
            let (inverse, is_short) = inverse(squares, self.epsilon);
            // `Σ y dy / |x|`, the factor of `x`.
            let along = V::select(is_short, V::zero(), products * inverse * inverse);
            for l in 0..self.x.rows() {
                let x = load_any::<V>(&self.x.row(l)[lanes.clone()]);
                let d_y = load_any::<V>(&self.d_y.row(l)[lanes.clone()]);
                let d_x = &mut self.d_x.row_mut(l)[lanes.clone()];
                let old = match self.into {
                    WriteMode::Overwrite => V::zero(),
                    WriteMode::Add => load_any(d_x),
                };
                store_any((d_y - x * along).mul_add(inverse, old), d_x);
            }
        }
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
    fn along_an_axis_it_is_that_of_rows() {
        on_every_isa(|isa| {
            for [outer, len, inner] in [[1, 1, 2], [3, 5, 7], [2, 13, 65], [0, 3, 2], [3, 0, 2]] {
                let axis = Axis { outer, len, inner };
                let x = noise::<f64>(axis.elements(), 1);
                let d_y = noise::<f64>(axis.elements(), 2);
                // One epsilon is shorter than all columns, the others are longer than some or all.
                for epsilon in [1e-12, 1.0, 100.0] {
                    let what = format!("{axis:?}, {epsilon} on {isa}");
                    let mut y = vec![f64::NAN; x.len()];
                    forward_along(&x, axis, epsilon, &mut y);
                    let mut d_x = vec![1.0; x.len()];
                    backward_along(&x, axis, epsilon, &d_y, &mut d_x, WriteMode::Add);
                    for column in 0..outer * inner {
                        let places =
                            (0..len).map(|l| (column / inner * len + l) * inner + column % inner);
                        let places: Vec<usize> = places.collect();
                        let of = |numbers: &[f64]| -> Vec<f64> {
                            places.iter().map(|place| numbers[*place]).collect()
                        };
                        let [x, d_y] = [&x, &d_y].map(|numbers| of(numbers));
                        // Some roundings of numbers up to 1.
                        assert_close(&what, &of(&y), &naive(&x, epsilon), Absolute(1e-15));
                        let mut want = vec![1.0; len];
                        backward(
                            Matrix::new(&x, 1, len),
                            epsilon,
                            Matrix::new(&d_y, 1, len),
                            MatrixMut::new(&mut want, 1, len),
                            WriteMode::Add,
                        );
                        assert_close(&what, &of(&d_x), &want, Absolute(1e-13));
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
