//! The softmax of rows or along any axis, and its derivative.
//!
//! ```text
//! y[i] = exp(x[i] - max(x)) / Σ exp(x - max(x))
//! dx   = y (dy - Σ y dy)
//! ```
//!
//! The maximum is subtracted first: it changes no quotient, and no power overflows. PyTorch: `torch.softmax(x, -1)`, also for
//! rows with NaN or infinities: -∞ becomes 0. A row of -∞ only, or with +∞ or NaN, becomes NaN.

use std::iter::repeat;

use super::axis::{Axis, Counted, for_each_part, for_some_columns};
use super::compiled::compiled;
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::rows::{Sink, Source, for_chunks};
use super::{Buffer, Matrix, MatrixMut, Pooled, Real, assert_same_shape};
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

compiled! {
    SoftmaxAlong:

    /// `y = softmax(x)` along an axis: the numbers `y[o, .., i]` have the sum 1. PyTorch: `torch.softmax(x, 1)`.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn forward_along<E>(x: &[E], axis: Axis, y: &mut [E]) {
        axis.assert_equal_lengths(&[x.len(), y.len()]);
        if axis.inner == 1 {
            let y = MatrixMut::new(y, axis.outer, axis.len);
            return forward(Matrix::new(x, axis.outer, axis.len).into(), y.into());
        }
        for_each_part(axis, axis.len * axis.inner, y, |o, y| {
            let x = Matrix::new(&x[axis.block(o)], axis.len, axis.inner);
            for_some_columns(MatrixMut::new(y, axis.len, axis.inner), |cols, y| {
                run(ForwardColumns { x: x.some_cols(cols), y });
            });
        });
    }

    /// Adds the derivative of [`forward_along`] to `d_x`, from the result `y` and its gradient.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn backward_along<E>(y: &[E], d_y: &[E], axis: Axis, d_x: &mut [E]) {
        axis.assert_equal_lengths(&[y.len(), d_y.len(), d_x.len()]);
        if axis.inner == 1 {
            let [y, d_y] = [y, d_y].map(|x| Matrix::new(x, axis.outer, axis.len));
            return backward(y, d_y, MatrixMut::new(d_x, axis.outer, axis.len));
        }
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let [y, d_y] = [y, d_y].map(|x| Matrix::new(&x[axis.block(o)], axis.len, axis.inner));
            for_some_columns(MatrixMut::new(d_x, axis.len, axis.inner), |cols, d_x| {
                run(BackwardColumns {
                    y: y.some_cols(cols.clone()),
                    d_y: d_y.some_cols(cols),
                    d_x,
                });
            });
        });
    }
}

compiled! {
    SoftmaxWhere:

    /// The softmax along an axis of the numbers that are `counted`. The others are not read, and become 0.
    ///
    /// # Panics
    /// If the lengths differ, or a count exceeds the axis.
    #[track_caller]
    pub fn forward_where<E>(x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
        if matches!(counted, Counted::All) {
            return forward_along(x, axis, y);
        }
        axis.assert_equal_lengths(&[x.len(), y.len()]);
        axis.assert_counted(counted);
        for_each_part(axis, axis.len * axis.inner, y, |o, y| {
            y.fill(E::ZERO);
            let some = Selected { axis, counted, o };
            let x = some.gather(&x[axis.block(o)]);
            let mut shares = Buffer::uninit(x.len());
            forward_along(&x, some.axis(), &mut shares);
            some.scatter(&shares, y, |share, y| *y = share);
        });
    }

    /// Adds the derivative of [`forward_where`] to `d_x`, from the result `y` and its gradient, of which only the numbers that are `counted`
    /// are read.
    ///
    /// # Panics
    /// As [`forward_where`].
    #[track_caller]
    pub fn backward_where<E>(y: &[E], d_y: &[E], axis: Axis, counted: Counted<'_>, d_x: &mut [E]) {
        if matches!(counted, Counted::All) {
            return backward_along(y, d_y, axis, d_x);
        }
        axis.assert_equal_lengths(&[y.len(), d_y.len(), d_x.len()]);
        axis.assert_counted(counted);
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let some = Selected { axis, counted, o };
            let [y, d_y] = [y, d_y].map(|numbers| some.gather(&numbers[axis.block(o)]));
            let mut slopes = Buffer::zeros(y.len());
            backward_along(&y, &d_y, some.axis(), &mut slopes);
            some.scatter(&slopes, d_x, |slope, d_x| *d_x += slope);
        });
    }
}

/// The counted indices of an axis at one index of the outer axes.
#[derive(Clone, Copy)]
struct Selected<'a> {
    axis: Axis,
    counted: Counted<'a>,
    o: usize,
}

impl Selected<'_> {
    fn axis(self) -> Axis {
        Axis {
            outer: 1,
            len: self.counted.count(self.axis, self.o),
            inner: self.axis.inner,
        }
    }

    fn gather<E: Pooled>(self, block: &[E]) -> Buffer<E> {
        let mut numbers = Buffer::uninit(self.axis().elements());
        let mut end = 0;
        for run in self.counted.runs(self.axis, self.o) {
            let part = &block[self.axis.columns(run)];
            numbers[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        numbers
    }

    fn scatter<E: Pooled>(self, numbers: &[E], block: &mut [E], write: impl Fn(E, &mut E)) {
        let mut end = 0;
        for run in self.counted.runs(self.axis, self.o) {
            let part = &mut block[self.axis.columns(run)];
            let len = part.len();
            let both = part.iter_mut().zip(&numbers[end..end + len]);
            both.for_each(|(to, number)| write(*number, to));
            end += len;
        }
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

struct ForwardColumns<'a, E> {
    x: Matrix<'a, E>,
    y: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for ForwardColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for start in (0..self.x.cols()).step_by(V::LANES) {
            let lanes = start..self.x.cols().min(start + V::LANES);
            let mut max = V::splat(-E::INFINITY);
            for l in 0..self.x.rows() {
                max = load_any::<V>(&self.x.row(l)[lanes.clone()]).max(max);
            }
            let mut sum = V::zero();
            for l in 0..self.x.rows() {
                let x = load_any::<V>(&self.x.row(l)[lanes.clone()]);
                let power = math::exp_of_nonpositive(x - max);
                sum += power;
                store_any(power, &mut self.y.row_mut(l)[lanes.clone()]);
            }
            let share = V::splat(E::ONE) / sum;
            for l in 0..self.x.rows() {
                let y = &mut self.y.row_mut(l)[lanes.clone()];
                store_any(load_any::<V>(y) * share, y);
            }
        }
    }
}

struct BackwardColumns<'a, E> {
    y: Matrix<'a, E>,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for BackwardColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for start in (0..self.y.cols()).step_by(V::LANES) {
            let lanes = start..self.y.cols().min(start + V::LANES);
            let mut mean = V::zero();
            for l in 0..self.y.rows() {
                let y = load_any::<V>(&self.y.row(l)[lanes.clone()]);
                mean = y.mul_add(load_any(&self.d_y.row(l)[lanes.clone()]), mean);
            }
            for l in 0..self.y.rows() {
                let y = load_any::<V>(&self.y.row(l)[lanes.clone()]);
                let slope = load_any::<V>(&self.d_y.row(l)[lanes.clone()]) - mean;
                let d_x = &mut self.d_x.row_mut(l)[lanes.clone()];
                store_any(y.mul_add(slope, load_any(d_x)), d_x);
            }
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
        let by_rows = softmax(rows.as_flattened(), 5);
        // As columns.
        let x: Vec<f32> = (0..3).flat_map(|l| rows.map(|row| row[l])).collect();
        let mut y = vec![f32::INFINITY; 15];
        let axis = Axis {
            outer: 1,
            len: 3,
            inner: 5,
        };
        forward_along(&x, axis, &mut y);
        let by_columns: Vec<f32> = (0..15).map(|at| y[at % 3 * 5 + at / 3]).collect();
        for y in [by_rows, by_columns] {
            assert_eq!(y[..3], [0.5, 0.0, 0.5]);
            assert!(y[3..12].iter().all(|y| y.is_nan()), "{y:?}");
            assert_eq!(y[12..], [0.5, 0.5, 0.0]);
        }
    }

    #[test]
    fn columns_are_the_rows_of_the_transposed_tensor() {
        on_every_isa(|isa| {
            for sizes in [
                [1, 1, 1],
                [3, 5, 7],
                [2, 3, 33],
                [4, 9, 1],
                [0, 3, 2],
                [3, 0, 2],
                [3, 2, 0],
            ]
            .into_iter()
            .chain([[1, 3, 20_000], [900, 3, 33]])
            {
                let [outer, len, inner] = sizes;
                let axis = Axis { outer, len, inner };
                let what = format!("{axis:?} on {isa}");
                let x: Vec<f32> = noise(axis.elements(), 1)
                    .iter()
                    .map(|x: &f32| 9.0 * x)
                    .collect();
                let d_y = noise::<f32>(axis.elements(), 2);
                let mut y = vec![f32::NAN; x.len()];
                forward_along(&x, axis, &mut y);
                let mut d_x = vec![1.0; x.len()];
                backward_along(&y, &d_y, axis, &mut d_x);

                // Row by row, where the axis is the last one.
                let places = (0..outer).flat_map(|o| {
                    let at = move |i: usize, l: usize| (o * len + l) * inner + i;
                    (0..inner).flat_map(move |i| (0..len).map(move |l| at(i, l)))
                });
                let places: Vec<usize> = places.collect();
                let transposed = |x: &[f32]| places.iter().map(|&at| x[at]).collect::<Vec<_>>();
                let rows = outer * inner;
                let mut want = vec![f32::NAN; x.len()];
                let columns = transposed(&x);
                forward(
                    Matrix::new(&columns, rows, len).into(),
                    MatrixMut::new(&mut want, rows, len).into(),
                );
                // Weights of at most 1, whose sums are rounded in another order.
                assert_close(&what, &transposed(&y), &wide(&want), Absolute(3e-7));
                let mut want_d_x = vec![1.0; x.len()];
                backward(
                    Matrix::new(&want, rows, len),
                    Matrix::new(&transposed(&d_y), rows, len),
                    MatrixMut::new(&mut want_d_x, rows, len),
                );
                assert_close(&what, &transposed(&d_x), &wide(&want_d_x), Absolute(1e-6));
            }
        });
    }

    #[test]
    fn empty_matrices_are_supported() {
        for (rows, cols) in [(0, 3), (3, 0)] {
            let x = Matrix::<f32>::new(&[], rows, cols);
            forward(x.into(), MatrixMut::new(&mut [], rows, cols).into());
        }
    }

    #[test]
    fn only_numbers_that_are_counted_have_shares() {
        on_every_isa(|isa| {
            for [outer, len, inner] in [
                [1, 1, 1],
                [3, 5, 7],
                [4, 9, 1],
                [2, 13, 65],
                [0, 3, 2],
                [3, 0, 2],
            ] {
                let axis = Axis { outer, len, inner };
                let numbers = noise::<f64>(axis.elements(), 1);
                let d_y = noise::<f64>(axis.elements(), 2);
                let counts: Vec<usize> = (0..outer).map(|o| o * 7 % (len + 1)).collect();
                let marks: Vec<bool> = (0..outer * len)
                    .map(|place| place * place % 7 < 3)
                    .collect();
                for counted in [Counted::First(&counts), Counted::Where(&marks)] {
                    let what = format!("{counted:?} of {axis:?} on {isa}");
                    let marks = counted.marks(axis);
                    let only = |numbers: &[f64], other: f64| -> Vec<f64> {
                        let places = 0..numbers.len();
                        let number = |at: usize| {
                            if marks[at / inner] {
                                numbers[at]
                            } else {
                                other
                            }
                        };
                        places.map(number).collect()
                    };
                    // Numbers that are not counted are NaN, also those of the gradient.
                    let mut y = vec![f64::NAN; numbers.len()];
                    forward_where(&only(&numbers, f64::NAN), axis, counted, &mut y);
                    let mut d_x = vec![1.0; numbers.len()];
                    backward_where(&y, &only(&d_y, f64::NAN), axis, counted, &mut d_x);

                    // The others have the share 0 of -∞.
                    let mut want = vec![f64::NAN; numbers.len()];
                    forward_along(&only(&numbers, f64::NEG_INFINITY), axis, &mut want);
                    let want = only(&want, 0.0);
                    assert_close(&what, &y, &want, Absolute(1e-15));
                    let mut want_of_x = vec![1.0; numbers.len()];
                    backward_along(&want, &only(&d_y, 0.0), axis, &mut want_of_x);
                    assert_close(&what, &d_x, &want_of_x, Absolute(1e-14));
                }
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(700 * 65, 1);
        same_for_all_threads(|| softmax(&x, 700));
        for [outer, len, inner] in [[700, 5, 13], [1, 65, 700]] {
            let axis = Axis { outer, len, inner };
            same_for_all_threads(|| {
                let mut y = vec![f32::NAN; axis.elements()];
                forward_along(&x, axis, &mut y);
                let mut d_x = vec![0.0; axis.elements()];
                backward_along(&y, &x, axis, &mut d_x);
                (y, d_x)
            });
        }
    }
}
