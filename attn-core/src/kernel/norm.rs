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

use std::ops::Range;

use super::compiled::compiled;
use super::fold::{add_column_sums, rows_per_sum};
use super::lanes::for_lanes;
use super::parallel::{equal_chunks, for_each, rows_per_task};
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

/// The factor of a normalised row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain<T> {
    /// None.
    One,
    /// The factor is what is learned.
    Factor(T),
    /// One more than what is learned.
    OnePlus(T),
}

impl<T> Gain<T> {
    /// With a view of what is learned.
    pub fn as_ref(&self) -> Gain<&T> {
        match self {
            Self::One => Gain::One,
            Self::Factor(learned) => Gain::Factor(learned),
            Self::OnePlus(learned) => Gain::OnePlus(learned),
        }
    }

    /// The same with a mutable reference.
    pub fn as_mut(&mut self) -> Gain<&mut T> {
        match self {
            Self::One => Gain::One,
            Self::Factor(learned) => Gain::Factor(learned),
            Self::OnePlus(learned) => Gain::OnePlus(learned),
        }
    }

    /// With something else for what is learned.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Gain<U> {
        match self {
            Self::One => Gain::One,
            Self::Factor(learned) => Gain::Factor(of(learned)),
            Self::OnePlus(learned) => Gain::OnePlus(of(learned)),
        }
    }

    /// [`map`](Self::map) by a function that may fail.
    pub(crate) fn try_map<U, Error>(
        self,
        of: impl FnOnce(T) -> Result<U, Error>,
    ) -> Result<Gain<U>, Error> {
        Ok(match self {
            Self::One => Gain::One,
            Self::Factor(learned) => Gain::Factor(of(learned)?),
            Self::OnePlus(learned) => Gain::OnePlus(of(learned)?),
        })
    }

    /// The learned numbers.
    pub fn learned(self) -> Option<T> {
        match self {
            Self::One => None,
            Self::Factor(learned) | Self::OnePlus(learned) => Some(learned),
        }
    }
}

/// A normalisation of rows. Row `r` has the gain and the bias of group `r % groups`.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a, E> {
    /// The statistic that it removes.
    pub kind: NormKind,
    /// `[groups, width]`
    pub gain: Gain<&'a [E]>,
    /// `[groups, width]`
    pub bias: Option<&'a [E]>,
    /// The number of gains and biases: 1 for rows that share them.
    pub groups: usize,
    /// Keeps the divisor away from 0.
    pub epsilon: E,
}

/// Where the derivative goes.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    /// The gradient of the rows.
    pub x: MatrixMut<'a, E>,
    /// Whether [`x`](Self::x) is overwritten.
    pub into: WriteMode,
    /// The gradient of the gain, which is added to what is there.
    pub gain: Option<&'a mut [E]>,
    /// The gradient of the bias, which is added to what is there.
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
        let given = [self.gain.learned(), self.bias].into_iter().flatten();
        assert!(
            given.map(<[E]>::len).all(|len| len == self.groups * width),
            "the gain and the bias have the width of a row"
        );
        assert!(
            rows.is_multiple_of(self.groups),
            "{rows} rows of {} groups",
            self.groups
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
        let gain = Factor::of(norm.gain);
        let rows = rows_per_task(width);
        let statistics = statistics.chunks_mut(STATISTICS * rows).enumerate();
        for_chunks(x, y, statistics, |x, y, (chunk, statistics)| {
            run(Forward {
                kind: norm.kind,
                epsilon: norm.epsilon,
                groups: Groups {
                    number: norm.groups,
                    first: chunk * rows,
                },
                gain: gain.as_slice(),
                bias: norm.bias,
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
        let groups = norm.groups;
        // Every chunk has the rows of all groups.
        let chunk = rows_per_sum(groups * width) * groups;
        let gain = Factor::of(norm.gain);
        // Per chunk of rows, its sums for the gain and for the bias.
        let [has_gain, has_bias] = [to.gain.is_some(), to.bias.is_some()];
        let learned = [has_gain, has_bias].map(|has| if has { groups * width } else { 0 });
        let len = learned[0] + learned[1];
        let chunks = rows.div_ceil(chunk);
        let mut sums = Buffer::zeros(chunks * len);
        let parts = to.x.row_chunks(chunk);
        let tasks = parts.zip(equal_chunks(&mut sums, chunks)).enumerate();
        for_each(tasks, |(index, (d_x, sums))| {
            let rows = index * chunk..index * chunk + d_x.rows();
            let (d_gain, d_bias) = sums.split_at_mut(learned[0]);
            run(Backward {
                kind: norm.kind,
                groups: Groups {
                    number: groups,
                    first: 0,
                },
                gain: gain.as_slice(),
                x: x.some_rows(rows.clone()),
                statistics: &statistics[STATISTICS * rows.start..STATISTICS * rows.end],
                d_y: d_y.some_rows(rows),
                d_x,
                into: to.into,
                d_gain: has_gain.then_some(d_gain),
                d_bias: has_bias.then_some(d_bias),
            });
        });
        let sums = Matrix::new(&sums, chunks, len);
        if let Some(d_gain) = to.gain {
            add_column_sums(sums.some_cols(0..learned[0]), d_gain);
        }
        if let Some(d_bias) = to.bias {
            add_column_sums(sums.some_cols(learned[0]..len), d_bias);
        }
    }
}

/// The factor of every column, if there is a gain.
enum Factor<'a, E: Pooled> {
    None,
    Given(&'a [E]),
    Computed(Buffer<E>),
}

impl<'a, E: Pooled> Factor<'a, E> {
    fn of(gain: Gain<&'a [E]>) -> Self {
        match gain {
            Gain::One => Self::None,
            Gain::Factor(gain) => Self::Given(gain),
            Gain::OnePlus(gain) => {
                let mut factor = Buffer::uninit(gain.len());
                for (factor, &gain) in factor.iter_mut().zip(gain) {
                    *factor = E::ONE + gain;
                }
                Self::Computed(factor)
            }
        }
    }

    fn as_slice(&self) -> Option<&[E]> {
        match self {
            Self::None => None,
            Self::Given(gain) => Some(gain),
            Self::Computed(gain) => Some(gain),
        }
    }
}

/// The groups of the rows of a chunk.
#[derive(Clone, Copy)]
struct Groups {
    number: usize,
    /// The index of the first row of the chunk among all rows.
    first: usize,
}

impl Groups {
    /// The columns of gains and biases of row `i` of the chunk, of rows of this width.
    #[inline(always)]
    fn columns(self, i: usize, width: usize) -> Range<usize> {
        let group = match self.number {
            1 => 0,
            number => (self.first + i) % number,
        };
        group * width..(group + 1) * width
    }
}

struct Forward<'a, E> {
    kind: NormKind,
    epsilon: E,
    groups: Groups,
    gain: Option<&'a [E]>,
    bias: Option<&'a [E]>,
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
            let y = self.y.row_mut(i);
            let columns = self.groups.columns(i, x.len());
            let gain = self.gain.map(|gain| &gain[columns.clone()]);
            let bias = self.bias.map(|bias| &bias[columns]);
            match (gain, bias) {
                (Some(gain), Some(bias)) => for_lanes!(V, x.len(), [x, gain, bias], [y], {
                    let h = normalised::<V>(x, mean, inverse);
                    store_any(h.mul_add(load_any(gain), load_any(bias)), y);
                }),
                (Some(gain), None) => for_lanes!(V, x.len(), [x, gain], [y], {
                    store_any(normalised::<V>(x, mean, inverse) * load_any(gain), y);
                }),
                (None, Some(bias)) => for_lanes!(V, x.len(), [x, bias], [y], {
                    store_any(normalised::<V>(x, mean, inverse) + load_any(bias), y);
                }),
                (None, None) => for_lanes!(V, x.len(), [x], [y], {
                    store_any(normalised::<V>(x, mean, inverse), y);
                }),
            }
            statistics.copy_from_slice(&[mean, inverse]);
        }
    }
}

struct Backward<'a, E> {
    kind: NormKind,
    groups: Groups,
    gain: Option<&'a [E]>,
    x: Matrix<'a, E>,
    statistics: &'a [E],
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
    into: WriteMode,
    d_gain: Option<&'a mut [E]>,
    d_bias: Option<&'a mut [E]>,
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
        let mut sums = Sums {
            d_h: V::zero(),
            d_h_h: V::zero(),
        };
        let columns = self.groups.columns(i, x.len());
        let gain = self.gain.map(|gain| &gain[columns.clone()]);
        let d_gain = self.d_gain.as_deref_mut();
        match (gain, d_gain.map(|d_gain| &mut d_gain[columns.clone()])) {
            (Some(gain), Some(d_gain)) => for_lanes!(V, x.len(), [x, d_y, gain], [d_gain], {
                let h = normalised::<V>(x, mean, inverse);
                let d_y = load_any::<V>(d_y);
                store_any(d_y.mul_add(h, load_any(d_gain)), d_gain);
                sums.add(h, d_y * load_any(gain));
            }),
            (Some(gain), None) => for_lanes!(V, x.len(), [x, d_y, gain], [], {
                let h = normalised::<V>(x, mean, inverse);
                sums.add(h, load_any::<V>(d_y) * load_any(gain));
            }),
            (None, _) => for_lanes!(V, x.len(), [x, d_y], [], {
                sums.add(normalised::<V>(x, mean, inverse), load_any(d_y));
            }),
        }
        if let Some(d_bias) = self.d_bias.as_deref_mut() {
            let d_bias = &mut d_bias[columns];
            for_lanes!(V, d_y.len(), [d_y], [d_bias], {
                store_any(load_any::<V>(d_y) + load_any(d_bias), d_bias);
            });
        }
        let width = E::of_f64(self.x.cols() as f64);
        let mean_d_h = match self.kind {
            NormKind::Layer => sums.d_h.reduce_sum() / width,
            NormKind::Rms => E::ZERO,
        };
        (mean_d_h, sums.d_h_h.reduce_sum() / width)
    }

    /// Writes row `i` of the gradient of the input, from the means of `dh` and `dh * h`.
    #[inline(always)]
    fn write_row<V: Vector<Element = E>>(&mut self, i: usize, d_h: E, d_h_h: E) {
        let mean = self.statistics[STATISTICS * i];
        let inverse = self.statistics[STATISTICS * i + 1];
        let x = self.x.row(i);
        let d_y = self.d_y.row(i);
        let d_x = self.d_x.row_mut(i);
        let into = self.into;
        let columns = self.groups.columns(i, x.len());
        match self.gain.map(|gain| &gain[columns]) {
            Some(gain) => for_lanes!(V, x.len(), [x, d_y, gain], [d_x], {
                let centred = load_any::<V>(d_y).mul_add(load_any(gain), -V::splat(d_h));
                let h = normalised::<V>(x, mean, inverse);
                write(h, centred, (d_h_h, inverse), into, d_x);
            }),
            None => for_lanes!(V, x.len(), [x, d_y], [d_x], {
                let centred = load_any::<V>(d_y) - V::splat(d_h);
                let h = normalised::<V>(x, mean, inverse);
                write(h, centred, (d_h_h, inverse), into, d_x);
            }),
        }
    }
}

/// The sums of `dh` and of `dh * h` over a row.
struct Sums<V> {
    d_h: V,
    d_h_h: V,
}

impl<V: Vector> Sums<V> {
    /// Beyond the end of a row `h` may be anything, but `dh` is 0.
    #[inline(always)]
    fn add(&mut self, h: V, d_h: V) {
        self.d_h += d_h;
        self.d_h_h = d_h.mul_add(h, self.d_h_h);
    }
}

/// Writes a chunk of the gradient of the input, from `dh - mean(dh)` and the mean of `dh * h`.
#[inline(always)]
fn write<V: Vector>(
    h: V,
    centred: V,
    (d_h_h, inverse): (V::Element, V::Element),
    into: WriteMode,
    d_x: &mut [V::Element],
) {
    let rest = h.mul_add(-V::splat(d_h_h), centred);
    let old = match into {
        WriteMode::Overwrite => V::zero(),
        WriteMode::Add => load_any(d_x),
    };
    store_any(rest.mul_add(V::splat(inverse), old), d_x);
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
