//! Layer normalisation and root mean square normalisation of the rows of a matrix, and their derivatives.
//!
//! With the mean `m` and the variance `v` of a row `x` of width `n`, and for [`NormKind::Rms`] with `m = 0` and `v = mean(x²)`:
//!
//! ```text
//! h = (x - m) / sqrt(v + epsilon)
//! y = h * gain + bias
//! ```
//!
//! From the gradient `dy` follow, with `dh = dy * gain` and without the first mean for [`NormKind::Rms`],
//!
//! ```text
//! dx = (dh - mean(dh) - h * mean(dh * h)) / sqrt(v + epsilon)
//! dgain = Σ rows of dy * h        dbias = Σ rows of dy
//! ```
//!
//! Ba, Kiros and Hinton, "Layer normalization" (2016); Zhang and Sennrich, "Root mean square layer normalization" (2019).
//! PyTorch: `torch.nn.functional.layer_norm(x, (n,), gain, bias, epsilon)` and `rms_norm(x, (n,), gain, epsilon)`.
//!
//! The variance is the mean square of what is left after the mean is subtracted, so a large mean does not cancel it.

use super::compiled::compiled;
use super::fold::{add_column_sums, rows_per_sum};
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::rows::{Sink, Source, for_chunks};
use super::{Buffer, Matrix, MatrixMut, Pooled, Real, assert_same_shape};
use crate::simd::slice::{self, load_any, load_filled, store_any};
use crate::simd::{Kernel, Vector, WriteMode, run};

/// Numbers that [`Norm::forward`] keeps of every row: `m` and `1 / sqrt(v + epsilon)`.
pub const STATISTICS: usize = 2;

/// The statistic that a norm removes from a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Its mean, and then its standard deviation.
    Layer,
    /// Its root mean square.
    Rms,
}

/// A normalisation of rows. The gain and the bias have their width.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a, E> {
    /// The statistic that it removes.
    pub kind: NormKind,
    /// The factor of a normalised row.
    pub gain: Option<&'a [E]>,
    /// The bias.
    pub bias: Option<&'a [E]>,
    /// Keeps the divisor away from 0.
    pub epsilon: E,
}

/// Where the derivative goes.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    /// As the input.
    pub x: MatrixMut<'a, E>,
    /// Whether [`x`](Self::x) is overwritten.
    pub into: WriteMode,
    /// As the gain; added to what is there.
    pub gain: Option<&'a mut [E]>,
    /// As the bias; added to what is there.
    pub bias: Option<&'a mut [E]>,
}

impl<E: Norms<E>> Norm<'_, E> {
    /// Normalises the rows of `x [n, width]` to `y [n, width]`, and keeps [`STATISTICS`] of every row for
    /// [`backward`](Self::backward).
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<'a>(
        &self,
        x: impl Into<Source<'a, E>>,
        y: impl Into<Sink<'a, E>>,
        statistics: &mut [E],
    ) where
        E: 'a,
    {
        forward(self, x.into(), y.into(), statistics);
    }

    /// From `d_y`, the gradient of the output, that of everything else.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn backward(
        &self,
        x: Matrix<'_, E>,
        statistics: &[E],
        d_y: Matrix<'_, E>,
        to: Gradients<'_, E>,
    ) {
        backward(self, x, statistics, d_y, to);
    }

    #[track_caller]
    fn assert_lens(&self, (rows, width): (usize, usize), statistics: usize) {
        let given = [self.gain, self.bias].into_iter().flatten();
        assert!(
            given.map(<[E]>::len).all(|len| len == width),
            "the gain and the bias have the width of a row"
        );
        assert_eq!(statistics, STATISTICS * rows, "the statistics of every row");
    }
}

compiled! {
    Norms:

    /// [`Norm::forward`]
    #[track_caller]
    fn forward<E>(
        norm: &Norm<'_, E>,
        x: Source<'_, E>,
        y: Sink<'_, E>,
        statistics: &mut [E],
    ) {
        let width = y.cols();
        norm.assert_lens((y.rows(), width), statistics.len());
        let gain = Row::new(norm.gain, E::ONE, width);
        let bias = Row::new(norm.bias, E::ZERO, width);
        let statistics = statistics.chunks_mut(STATISTICS * rows_per_task(width));
        for_chunks(x, y, statistics, |x, y, statistics| {
            run(Forward {
                kind: norm.kind,
                epsilon: norm.epsilon,
                gain: gain.as_slice(),
                bias: bias.as_slice(),
                x,
                y,
                statistics,
            });
        });
    }

    /// [`Norm::backward`]
    #[track_caller]
    fn backward<E>(
        norm: &Norm<'_, E>,
        x: Matrix<'_, E>,
        statistics: &[E],
        d_y: Matrix<'_, E>,
        to: Gradients<'_, E>,
    ) {
        let rows = x.rows();
        let width = x.cols();
        norm.assert_lens((rows, width), statistics.len());
        assert_same_shape(x, to.x.rows(), to.x.cols());
        assert_same_shape(x, d_y.rows(), d_y.cols());
        if rows == 0 || width == 0 {
            return;
        }
        let chunk = rows_per_sum(width);
        let gain = Row::new(norm.gain, E::ONE, width);
        // Per chunk of rows, its sums for the gain and for the bias.
        let mut sums = Buffer::zeros(rows.div_ceil(chunk) * 2 * width);
        let parts = to.x.row_chunks(chunk);
        let tasks = parts.zip(sums.chunks_mut(2 * width)).enumerate();
        for_each(tasks, |(index, (d_x, sums))| {
            let rows = index * chunk..index * chunk + d_x.rows();
            let (d_gain, d_bias) = sums.split_at_mut(width);
            run(Backward {
                kind: norm.kind,
                gain: gain.as_slice(),
                x: x.some_rows(rows.clone()),
                statistics: &statistics[STATISTICS * rows.start..STATISTICS * rows.end],
                d_y: d_y.some_rows(rows),
                d_x,
                into: to.into,
                d_gain,
                d_bias,
            });
        });
        let sums = Matrix::new(&sums, sums.len() / (2 * width), 2 * width);
        if let Some(d_gain) = to.gain {
            add_column_sums(sums.some_cols(0..width), d_gain);
        }
        if let Some(d_bias) = to.bias {
            add_column_sums(sums.some_cols(width..2 * width), d_bias);
        }
    }
}

/// A gain or a bias, or what stands for an absent one.
enum Row<'a, E: Pooled> {
    Given(&'a [E]),
    Constant(Buffer<E>),
}

impl<'a, E: Pooled> Row<'a, E> {
    fn new(row: Option<&'a [E]>, otherwise: E, width: usize) -> Self {
        row.map_or_else(
            || {
                let mut row = Buffer::uninit(width);
                row.fill(otherwise);
                Self::Constant(row)
            },
            Self::Given,
        )
    }

    fn as_slice(&self) -> &[E] {
        match self {
            Self::Given(row) => row,
            Self::Constant(row) => row,
        }
    }
}

struct Forward<'a, E> {
    kind: NormKind,
    epsilon: E,
    gain: &'a [E],
    bias: &'a [E],
    x: Matrix<'a, E>,
    y: MatrixMut<'a, E>,
    statistics: &'a mut [E],
}

impl<E: Real> Kernel for Forward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let width = E::of_f64(self.x.cols() as f64);
        for (i, statistics) in self.statistics.chunks_mut(STATISTICS).enumerate() {
            let x = self.x.row(i);
            let mean = match self.kind {
                NormKind::Layer => slice::sum::<V>(x) / width,
                NormKind::Rms => E::ZERO,
            };
            let variance = squares::<V>(x, mean) / width;
            let inverse = inverse_sqrt::<V>(variance + self.epsilon);
            let gain = self.gain;
            let bias = self.bias;
            let y = self.y.row_mut(i);
            for_lanes!(V, x.len(), [x, gain, bias], [y], {
                let h = normalised::<V>(x, mean, inverse);
                store_any(h.mul_add(load_any(gain), load_any(bias)), y);
            });
            statistics.copy_from_slice(&[mean, inverse]);
        }
    }
}

struct Backward<'a, E> {
    kind: NormKind,
    gain: &'a [E],
    x: Matrix<'a, E>,
    statistics: &'a [E],
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
    into: WriteMode,
    d_gain: &'a mut [E],
    d_bias: &'a mut [E],
}

impl<E: Real> Kernel for Backward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let (d_h, d_h_h) = self.add_sums::<V>(i);
            self.write_row::<V>(i, d_h, d_h_h);
        }
    }
}

impl<E: Real> Backward<'_, E> {
    /// Adds row `i` to the gradients of the gain and the bias, and returns the means of `dh` and `dh * h`.
    #[inline(always)]
    fn add_sums<V: Vector<Element = E>>(&mut self, i: usize) -> (E, E) {
        let mean = self.statistics[STATISTICS * i];
        let inverse = self.statistics[STATISTICS * i + 1];
        let x = self.x.row(i);
        let d_y = self.d_y.row(i);
        let gain = self.gain;
        let d_gain = &mut *self.d_gain;
        let d_bias = &mut *self.d_bias;
        let mut sum_d_h = V::zero();
        let mut sum_d_h_h = V::zero();
        for_lanes!(V, x.len(), [x, d_y, gain], [d_gain, d_bias], {
            let h = normalised::<V>(x, mean, inverse);
            let d_y = load_any::<V>(d_y);
            store_any(d_y.mul_add(h, load_any(d_gain)), d_gain);
            store_any(d_y + load_any(d_bias), d_bias);
            // Beyond the end of a row `h` may be anything, but `dy` and the gain are 0.
            let d_h = d_y * load_any(gain);
            sum_d_h += d_h;
            sum_d_h_h = d_h.mul_add(h, sum_d_h_h);
        });
        let width = E::of_f64(self.x.cols() as f64);
        let mean_d_h = match self.kind {
            NormKind::Layer => sum_d_h.reduce_sum() / width,
            NormKind::Rms => E::ZERO,
        };
        (mean_d_h, sum_d_h_h.reduce_sum() / width)
    }

    /// Writes row `i` of the gradient of the input, from the means of `dh` and `dh * h`.
    #[inline(always)]
    fn write_row<V: Vector<Element = E>>(&mut self, i: usize, d_h: E, d_h_h: E) {
        let mean = self.statistics[STATISTICS * i];
        let inverse = self.statistics[STATISTICS * i + 1];
        let x = self.x.row(i);
        let d_y = self.d_y.row(i);
        let gain = self.gain;
        let d_x = self.d_x.row_mut(i);
        for_lanes!(V, x.len(), [x, d_y, gain], [d_x], {
            let h = normalised::<V>(x, mean, inverse);
            let centred = load_any::<V>(d_y).mul_add(load_any(gain), -V::splat(d_h));
            let rest = h.mul_add(-V::splat(d_h_h), centred);
            let old = match self.into {
                WriteMode::Overwrite => V::zero(),
                WriteMode::Add => load_any(d_x),
            };
            store_any(rest.mul_add(V::splat(inverse), old), d_x);
        });
    }
}

/// `(x - mean) * inverse` for one chunk of a row.
#[inline(always)]
fn normalised<V: Vector>(x: &[V::Element], mean: V::Element, inverse: V::Element) -> V {
    (load_any::<V>(x) - V::splat(mean)) * V::splat(inverse)
}

/// `Σ (x - mean)²`
#[inline(always)]
fn squares<V: Vector>(x: &[V::Element], mean: V::Element) -> V::Element {
    // Four sums in turn, so that an addition need not wait for the one before it.
    let mut sums = [V::zero(); 4];
    for_lanes!(V, x.len(), [x], [], {
        let rest = load_filled::<V>(x, mean) - V::splat(mean);
        sums = [sums[1], sums[2], sums[3], rest.mul_add(rest, sums[0])];
    });
    ((sums[0] + sums[1]) + (sums[2] + sums[3])).reduce_sum()
}

#[inline(always)]
fn inverse_sqrt<V: Vector>(x: V::Element) -> V::Element {
    let mut first = [V::Element::ZERO];
    (V::splat(V::Element::ONE) / V::splat(x).sqrt()).store_partial(&mut first);
    first[0]
}

#[cfg(test)]
mod tests;
