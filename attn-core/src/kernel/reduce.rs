//! Reductions of an axis, and their derivatives.
//!
//! ```text
//! y[o, i]      = Σ, mean, max, min, variance or logsumexp of x[o, l, i] over l
//! dx[o, l, i] += dy[o, i] ∂y[o, i] / ∂x[o, l, i]
//! ```
//!
//! For rows (`inner` = 1) the vectors are along the axis, otherwise along `inner`.

use std::marker::PhantomData;

use super::axis::{self, Axis, Counted, for_each_part, for_each_task};
use super::compiled::compiled;
use super::fold::fold_rows;
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Pooled, Real, max};
use crate::simd::slice::{
    self, Deviation, Itself, Join, Max, Min, Power, SquaredDeviation, Sum, Term, load_any,
    store_any,
};
use crate::simd::{Kernel, Vector, WriteMode, call, math, run};

/// A reduction of the numbers along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// `Σ x`; 0 for an empty axis. PyTorch: `x.sum(1)`.
    Sum,
    /// `Σ x / n`; NaN for an empty axis. PyTorch: `x.mean(1)`.
    Mean,
    /// The largest number; NaN if there is one; -∞ for an empty axis. PyTorch: `x.max(1).values`.
    Max,
    /// The smallest number; NaN if there is one; ∞ for an empty axis. PyTorch: `x.min(1).values`.
    Min,
    /// `Σ (x - mean)² / n`; NaN for an empty axis. PyTorch: `x.var(1, correction=0)`.
    Variance,
    /// `ln Σ exp(x)`; -∞ for an empty axis. PyTorch: `x.logsumexp(1)`.
    Logsumexp,
}

impl Reduction {
    /// The result for an empty axis.
    pub const fn of_nothing(self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Mean | Self::Variance => f64::NAN,
            Self::Max | Self::Logsumexp => f64::NEG_INFINITY,
            Self::Min => f64::INFINITY,
        }
    }

    /// The result where none of several numbers is counted.
    pub const fn of_none(self) -> f64 {
        match self {
            Self::Logsumexp => f64::NEG_INFINITY,
            _ => 0.0,
        }
    }

    /// Whether the derivative reads the numbers.
    pub const fn reads_x(self) -> bool {
        !matches!(self, Self::Sum | Self::Mean)
    }

    /// Whether the derivative reads the result.
    pub const fn reads_y(self) -> bool {
        matches!(self, Self::Max | Self::Min | Self::Logsumexp)
    }
}

compiled! {
    Reductions:

    /// Reduces the numbers of `x` along `axis` that are `counted`. The others are not read.
    ///
    /// If none of several is counted, the result is that of [`Reduction::of_none`].
    ///
    /// # Panics
    /// If the lengths do not fit, or a count exceeds the axis.
    #[track_caller]
    pub fn forward<E>(reduction: Reduction, x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
        axis.assert_lengths(x.len(), y.len());
        axis.assert_counted(counted);
        if axis.len == 0 && matches!(counted, Counted::All) {
            return y.fill(E::of_f64(reduction.of_nothing()));
        }
        let is_whole = matches!(counted, Counted::All);
        if is_whole && axis.inner == 1 && reduction != Reduction::Logsumexp {
            return for_each_task(axis, 1, y, |rows, y| {
                let x = &x[rows.start * axis.len..rows.end * axis.len];
                run(RowFolds { reduction, x, y });
            });
        }
        let part = Part { x, axis, counted };
        match reduction {
            Reduction::Sum => axis::sum(x, axis, counted, y),
            Reduction::Mean => axis::mean(x, axis, counted, y),
            Reduction::Max => max::forward(x, axis, counted, y),
            Reduction::Min => for_each_part(axis, axis.inner, y, |o, y| match part.count(o) {
                0 => y.fill(E::ZERO),
                _ => part.fold::<Min, Itself>(o, None, y),
            }),
            Reduction::Variance => for_each_with_origins(axis, axis.inner, y, |o, means, y| {
                part.mean(o, means);
                part.fold::<Sum, SquaredDeviation>(o, Some(means), y);
                call::scale(part.share(o), y);
            }),
            Reduction::Logsumexp => for_each_with_origins(axis, axis.inner, y, |o, largest, y| {
                part.fold::<Max, Itself>(o, None, largest);
                // With a maximum of ±∞ nothing can be subtracted, and nothing need be: the result is the maximum.
                replace(largest, |largest| largest == E::INFINITY || largest == -E::INFINITY);
                part.fold::<Sum, Power>(o, Some(largest), y);
                run(AddLogarithm { origins: largest, y });
            }),
        }
    }

    /// Writes the derivative of [`forward`] to `d_x`, or adds it. `x` and `y` may be empty if it does not read them: see [`Reduction::reads_x`] and
    /// [`Reduction::reads_y`].
    ///
    /// The first of several equal maxima or minima gets the gradient. Where [`Logsumexp`](Reduction::Logsumexp) is -∞, the gradient
    /// is 0.
    ///
    /// # Panics
    /// As [`forward`].
    #[track_caller]
    pub fn backward<E>(
        reduction: Reduction,
        x: &[E],
        axis: Axis,
        counted: Counted<'_>,
        y: &[E],
        d_y: &[E],
        d_x: &mut [E],
        into: WriteMode,
    ) {
        axis.assert_lengths(d_x.len(), d_y.len());
        axis.assert_counted(counted);
        let width = axis.len * axis.inner;
        let row = |o: usize| o * axis.inner..(o + 1) * axis.inner;
        let is_whole = matches!(counted, Counted::All);
        let is_of_rows = matches!(reduction, Reduction::Sum | Reduction::Mean | Reduction::Variance);
        if is_whole && axis.inner == 1 && axis.len > 0 && is_of_rows {
            return for_each_task(axis, width, d_x, |rows, d_x| {
                let x = match reduction.reads_x() {
                    true => &x[rows.start * width..rows.end * width],
                    false => &[],
                };
                run(RowSlopes { reduction, x, d_y: &d_y[rows], d_x, into });
            });
        }
        if into == WriteMode::Overwrite {
            d_x.fill(E::ZERO);
        }
        let part = Part { x, axis, counted };
        match reduction {
            Reduction::Sum => axis::sum_backward(d_y, axis, counted, d_x),
            Reduction::Mean => axis::mean_backward(d_y, axis, counted, d_x),
            Reduction::Max | Reduction::Min => max::backward(x, axis, counted, y, d_y, d_x),
            Reduction::Variance => for_each_with_origins(axis, width, d_x, |o, means, d_x| {
                part.mean(o, means);
                let scale = E::TWO * part.share(o);
                part.add_terms::<Deviation>(o, means, scale, &d_y[row(o)], d_x);
            }),
            Reduction::Logsumexp => for_each_with_origins(axis, width, d_x, |o, origins, d_x| {
                origins.copy_from_slice(&y[row(o)]);
                // Then all numbers are -∞, whose exponentials are 0.
                replace(origins, |y| y == -E::INFINITY);
                part.add_terms::<Power>(o, origins, E::ONE, &d_y[row(o)], d_x);
            }),
        }
    }
}

/// Reduces rows, of which none is empty.
struct RowFolds<'a, E> {
    reduction: Reduction,
    x: &'a [E],
    y: &'a mut [E],
}

impl<E: Real> Kernel for RowFolds<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let width = self.x.len() / self.y.len().max(1);
        let share = E::ONE / E::of_f64(width as f64);
        let zero = V::zero();
        for (x, y) in self.x.chunks_exact(width.max(1)).zip(self.y) {
            *y = match self.reduction {
                Reduction::Max => slice::fold::<V, Max, Itself>(x, zero),
                Reduction::Min => slice::fold::<V, Min, Itself>(x, zero),
                Reduction::Mean => slice::sum::<V>(x) * share,
                Reduction::Variance => {
                    let mean = V::splat(slice::sum::<V>(x) * share);
                    slice::fold::<V, Sum, SquaredDeviation>(x, mean) * share
                }
                Reduction::Sum | Reduction::Logsumexp => slice::sum::<V>(x),
            };
        }
    }
}

/// The derivative of a sum, a mean or a variance of rows.
struct RowSlopes<'a, E> {
    reduction: Reduction,
    x: &'a [E],
    d_y: &'a [E],
    d_x: &'a mut [E],
    into: WriteMode,
}

impl<E: Real> Kernel for RowSlopes<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let width = self.d_x.len() / self.d_y.len().max(1);
        let share = E::ONE / E::of_f64(width as f64);
        // What is there counts, or it does not.
        let old = V::splat(match self.into {
            WriteMode::Overwrite => E::ZERO,
            WriteMode::Add => E::ONE,
        });
        let rows = self.d_x.chunks_exact_mut(width.max(1)).zip(self.d_y);
        for (row, (d_x, d_y)) in rows.enumerate() {
            if self.reduction == Reduction::Variance {
                let x = &self.x[row * width..][..width];
                let mean = V::splat(slice::sum::<V>(x) * share);
                let slope = V::splat(E::TWO * share * *d_y);
                for_lanes!(V, width, [x], [d_x], {
                    let term = Deviation::of(load_any::<V>(x), mean);
                    store_any(term.mul_add(slope, keep(old, d_x)), d_x);
                });
                continue;
            }
            let slope = match self.reduction {
                Reduction::Mean => V::splat(share * *d_y),
                _ => V::splat(*d_y),
            };
            for_lanes!(V, width, [], [d_x], store_any(slope + keep(old, d_x), d_x));
        }
    }
}

/// The numbers, or zeros if they do not count.
#[inline(always)]
fn keep<V: Vector>(is_kept: V, numbers: &[V::Element]) -> V {
    V::select(is_kept.ne(V::zero()), load_any(numbers), V::zero())
}

/// The counted numbers of a tensor along an axis.
#[derive(Clone, Copy)]
struct Part<'a, E> {
    x: &'a [E],
    axis: Axis,
    counted: Counted<'a>,
}

impl<E: Pooled> Part<'_, E> {
    fn count(self, o: usize) -> usize {
        self.counted.count(self.axis, o)
    }

    /// `1 / count`
    fn share(self, o: usize) -> E {
        axis::share(self.count(o))
    }

    /// `to` is the fold of the terms of each column.
    fn fold<J: Join<E>, T: Term<E>>(self, o: usize, origins: Option<&[E]>, to: &mut [E]) {
        to.fill(J::start());
        for run in self.counted.runs(self.axis, o) {
            fold_rows::<J, T, E>(&self.x[self.axis.part(o, run)], origins, to);
        }
    }

    /// The means of the columns.
    fn mean(self, o: usize, to: &mut [E]) {
        self.fold::<Sum, Itself>(o, None, to);
        call::scale(self.share(o), to);
    }

    /// `d_x[l, i] += term(x[l, i], origins[i]) * scale * d_y[i]`
    fn add_terms<T: Term<E>>(self, o: usize, origins: &[E], scale: E, d_y: &[E], d_x: &mut [E]) {
        for run in self.counted.runs(self.axis, o) {
            let x = &self.x[self.axis.part(o, run.clone())];
            add_terms::<T, E>(x, origins, scale, d_y, &mut d_x[self.axis.columns(run)]);
        }
    }
}

/// Replaces some numbers by 0.
fn replace<E: Real>(numbers: &mut [E], is_replaced: impl Fn(E) -> bool) {
    for number in numbers {
        *number = if is_replaced(*number) {
            E::ZERO
        } else {
            *number
        };
    }
}

/// `body(o, origins, to)` for every index `o` of the outer axes, with memory for an origin of each column, and its `width` elements
/// of `to`.
fn for_each_with_origins<E: Pooled>(
    axis: Axis,
    width: usize,
    to: &mut [E],
    body: impl Fn(usize, &mut [E], &mut [E]) + Send + Sync,
) {
    for_each_task(axis, width, to, |outer, to| {
        let mut origins = Buffer::uninit(axis.inner);
        for (o, to) in outer.zip(to.chunks_mut(width)) {
            body(o, &mut origins, to);
        }
    });
}

/// `d_x[l, i] += term(x[l, i], origins[i]) * scale * d_y[i]`
fn add_terms<T: Term<E>, E: Pooled>(x: &[E], origins: &[E], scale: E, d_y: &[E], d_x: &mut [E]) {
    let part = rows_per_task(d_y.len()) * d_y.len();
    let parts = x.chunks(part).zip(d_x.chunks_mut(part));
    for_each(parts, |(x, d_x)| {
        run(AddTerms::<T, E> {
            x,
            origins,
            scale,
            d_y,
            d_x,
            term: PhantomData,
        });
    });
}

struct AddTerms<'a, T, E> {
    x: &'a [E],
    origins: &'a [E],
    scale: E,
    d_y: &'a [E],
    d_x: &'a mut [E],
    term: PhantomData<T>,
}

impl<T: Term<E>, E: Real> Kernel for AddTerms<'_, T, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self {
            x,
            origins,
            d_y,
            d_x,
            ..
        } = self;
        let scale = V::splat(self.scale);
        if let ([origin], [d_y]) = (origins, d_y) {
            let origin = V::splat(*origin);
            let slope = scale * V::splat(*d_y);
            for_lanes!(V, x.len(), [x], [d_x], {
                let term = T::of(load_any::<V>(x), origin);
                store_any(term.mul_add(slope, load_any(d_x)), d_x);
            });
            return;
        }
        let width = d_y.len();
        for (x, d_x) in x.chunks_exact(width).zip(d_x.chunks_exact_mut(width)) {
            for_lanes!(V, width, [x, origins, d_y], [d_x], {
                let term = T::of(load_any::<V>(x), load_any(origins));
                let slope = scale * load_any(d_y);
                store_any(term.mul_add(slope, load_any(d_x)), d_x);
            });
        }
    }
}

/// `y = ln(y) + origin`
struct AddLogarithm<'a, E> {
    origins: &'a [E],
    y: &'a mut [E],
}

impl<E: Real> Kernel for AddLogarithm<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { origins, y } = self;
        for_lanes!(V, y.len(), [origins], [y], {
            store_any(math::ln(load_any::<V>(y)) + load_any(origins), y);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const ALL: [Reduction; 6] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Max,
        Reduction::Min,
        Reduction::Variance,
        Reduction::Logsumexp,
    ];

    /// The last ones are several tasks along `outer`, along the axis, and along `inner`.
    const SIZES: [[usize; 3]; 13] = [
        [1, 1, 1],
        [3, 5, 7],
        [1, 700, 1],
        [4, 9, 1],
        [2, 130, 65],
        [5, 1, 4],
        [0, 3, 2],
        [3, 0, 2],
        [3, 0, 1],
        [3, 2, 0],
        [900, 3, 33],
        [1, 1100, 17],
        [1, 3, 20_000],
    ];

    fn axis([outer, len, inner]: [usize; 3]) -> Axis {
        Axis { outer, len, inner }
    }

    /// The result for one column, by the definition.
    fn naive(reduction: Reduction, x: &[f64]) -> f64 {
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        match reduction {
            Reduction::Sum => x.iter().sum::<f64>() + 0.0,
            Reduction::Mean => mean,
            Reduction::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
            Reduction::Variance => x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n,
            Reduction::Logsumexp => x.iter().map(|x| x.exp()).sum::<f64>().ln(),
        }
    }

    /// The columns along the axis.
    fn columns(x: &[f64], axis: Axis) -> impl Iterator<Item = Vec<f64>> {
        let places = (0..axis.outer).flat_map(move |o| (0..axis.inner).map(move |i| (o, i)));
        let at = move |o, l, i| x[(o * axis.len + l) * axis.inner + i];
        places.map(move |(o, i)| (0..axis.len).map(|l| at(o, l, i)).collect())
    }

    fn reduced<E: crate::kernel::Kernels>(reduction: Reduction, x: &[E], axis: Axis) -> Vec<E> {
        let mut y = vec![E::NAN; axis.outer * axis.inner];
        forward(reduction, x, axis, Counted::All, &mut y);
        y
    }

    #[test]
    fn reductions_are_those_of_the_definition() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                let x = noise::<f32>(axis.elements(), 1);
                for reduction in ALL {
                    let what = format!("{reduction:?} of {axis:?} on {isa}");
                    let y = reduced(reduction, &x, axis);
                    let want: Vec<f64> = columns(&wide(&x), axis)
                        .map(|column| naive(reduction, &column))
                        .collect();
                    if axis.len == 0 {
                        let is_same = |(y, want): (&f32, &f64)| {
                            f64::from(*y) == *want || (y.is_nan() && want.is_nan())
                        };
                        assert!(y.iter().zip(&want).all(is_same), "{what}: {y:?}");
                    } else {
                        // Sums of up to 1100 numbers, in several parts: some ten roundings of 30.
                        assert_close(&what, &y, &want, Absolute(1e-4));
                    }
                }
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        on_every_isa(|isa| {
            for axis in [[1, 1, 1], [3, 5, 7], [2, 37, 1], [4, 2, 17], [3, 0, 2]].map(axis) {
                let x = noise::<f64>(axis.elements(), 1);
                let d_y = noise::<f64>(axis.outer * axis.inner, 2);
                for reduction in ALL {
                    let y = reduced(reduction, &x, axis);
                    let mut d_x = vec![1.0; x.len()];
                    let [saved_x, saved_y] = [(reduction.reads_x(), &x), (reduction.reads_y(), &y)]
                        .map(|(is_read, numbers)| if is_read { &numbers[..] } else { &[] });
                    backward(
                        reduction,
                        saved_x,
                        axis,
                        Counted::All,
                        saved_y,
                        &d_y,
                        &mut d_x,
                        WriteMode::Add,
                    );
                    let loss = |x: &[f64]| {
                        let y = columns(x, axis).map(|column| naive(reduction, &column));
                        y.zip(&d_y).map(|(y, d_y)| y * d_y).sum()
                    };
                    let want: Vec<f64> = slopes(&x, loss).into_iter().map(|d| 1.0 + d).collect();
                    let what = format!("{reduction:?} of {axis:?} on {isa}");
                    // The error of the central differences.
                    assert_close(what, &d_x, &want, Absolute(1e-8));
                }
            }
        });
    }

    /// Both kinds of selections, as marks. Some select nothing.
    fn selections(axis: Axis) -> [(Vec<usize>, Vec<bool>); 2] {
        let counts: Vec<usize> = (0..axis.outer).map(|o| o * 7 % (axis.len + 1)).collect();
        let mark = |place: usize| place / axis.len % 4 != 3 && place * place % 7 < 3;
        let marks = (0..axis.outer * axis.len).map(mark).collect();
        let first = Counted::First(&counts).marks(axis);
        [(counts, first), (Vec::new(), marks)]
    }

    #[test]
    fn only_numbers_that_are_counted_are_reduced() {
        on_every_isa(|isa| {
            for axis in SIZES
                .map(axis)
                .into_iter()
                .filter(|axis| axis.elements() < 20_000)
            {
                let numbers = noise::<f64>(axis.elements(), 1);
                for (counts, marks) in selections(axis) {
                    let counted = match counts.is_empty() {
                        true => Counted::Where(&marks),
                        false => Counted::First(&counts),
                    };
                    let is_marked = |place: usize| marks[place / axis.inner];
                    // NaN is not read.
                    let x: Vec<f64> = (0..numbers.len())
                        .map(|place| {
                            if is_marked(place) {
                                numbers[place]
                            } else {
                                f64::NAN
                            }
                        })
                        .collect();
                    let d_y = noise::<f64>(axis.outer * axis.inner, 2);
                    for reduction in ALL {
                        let what = format!("{reduction:?} of {counted:?} in {axis:?} on {isa}");
                        let naive = |column: &[f64]| {
                            let some: Vec<f64> =
                                column.iter().copied().filter(|x| !x.is_nan()).collect();
                            match some.is_empty() {
                                true => reduction.of_none(),
                                false => naive(reduction, &some),
                            }
                        };
                        let mut y = vec![f64::NAN; d_y.len()];
                        forward(reduction, &x, axis, counted, &mut y);
                        let want: Vec<f64> =
                            columns(&x, axis).map(|column| naive(&column)).collect();
                        let is_close =
                            |(y, want): (&f64, &f64)| y == want || (y - want).abs() < 1e-12;
                        assert!(
                            y.iter().zip(&want).all(is_close),
                            "{what}: {y:?}, not {want:?}"
                        );
                        let mut d_x = vec![1.0; x.len()];
                        backward(
                            reduction,
                            &x,
                            axis,
                            counted,
                            &y,
                            &d_y,
                            &mut d_x,
                            WriteMode::Add,
                        );
                        let unread = (0..x.len()).filter(|place| !is_marked(*place));
                        assert!(unread.map(|place| d_x[place]).all(|d| d == 1.0), "{what}");
                        assert!(d_x.iter().all(|d| d.is_finite()), "{what}");
                    }
                }
            }
        });
    }

    #[test]
    fn infinities_and_nan_stay_in_their_column() {
        let inf = f32::INFINITY;
        let nan = f32::NAN;
        let rows = [
            [0.0, -inf, 0.0],
            [-inf; 3],
            [0.0, inf, 1.0],
            [-inf, inf, 0.0],
            [nan, inf, 0.0],
            [1e38, -1e38, 1e38],
        ];
        let x = rows.as_flattened();
        let transposed: Vec<f32> = (0..3).flat_map(|l| rows.map(|row| row[l])).collect();
        let ln_2 = std::f32::consts::LN_2;
        let want = [
            (Reduction::Sum, [-inf, -inf, inf, nan, nan, 1e38]),
            (Reduction::Max, [0.0, -inf, inf, inf, nan, 1e38]),
            (Reduction::Min, [-inf, -inf, 0.0, -inf, nan, -1e38]),
            (Reduction::Logsumexp, [ln_2, -inf, inf, inf, nan, 1e38]),
        ];
        on_every_isa(|isa| {
            for (reduction, want) in want {
                let by_rows = reduced(reduction, x, axis([6, 3, 1]));
                let by_columns = reduced(reduction, &transposed, axis([1, 3, 6]));
                for y in [by_rows, by_columns] {
                    let is_same = |(y, want): (&f32, f32)| {
                        (y - want).abs() < 1e-6 || *y == want || (y.is_nan() && want.is_nan())
                    };
                    let agree = y.iter().zip(want).all(is_same);
                    assert!(agree, "{reduction:?} on {isa}: {y:?}, not {want:?}");
                }
            }
        });
    }

    #[test]
    fn gradients_of_numbers_that_are_not_finite_are_limits() {
        let inf = f32::INFINITY;
        let x = [0.0, -inf, -inf, -inf, 0.0, inf, f32::NAN, f32::NAN];
        let axis = axis([4, 2, 1]);
        let gradient = |reduction| {
            let y = reduced(reduction, &x, axis);
            let mut d_x = [0.0; 8];
            backward(
                reduction,
                &x,
                axis,
                Counted::All,
                &y,
                &[2.0; 4],
                &mut d_x,
                WriteMode::Add,
            );
            d_x
        };
        let d_x = gradient(Reduction::Logsumexp);
        assert_eq!(d_x[..5], [2.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(d_x[5..].iter().all(|d| d.is_nan()), "{d_x:?}");
        let d_x = gradient(Reduction::Max);
        assert_eq!(d_x, [2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 2.0, 0.0]);
        let d_x = gradient(Reduction::Min);
        assert_eq!(d_x, [0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn variances_of_numbers_far_from_0_are_accurate() {
        // The mean of the squares less the square of the mean would be off by about 10, the rounding of 10^8.
        let x: Vec<f32> = (0..300).map(|i| 1e4 + (i % 3) as f32).collect();
        for (sizes, want) in [([1, 300, 1], 2.0 / 3.0), ([1, 100, 3], 0.0)] {
            for y in reduced(Reduction::Variance, &x, axis(sizes)) {
                // The square of the error of the mean, which is the sum of 100 numbers, each addition rounded by up to 0.03.
                assert!((y - want).abs() <= 1e-3, "{y}, not {want}");
            }
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for axis in [[90, 41, 33], [1, 1500, 40], [700, 65, 1], [1, 40_000, 1]].map(axis) {
            let x = noise::<f32>(axis.elements(), 1);
            for reduction in ALL {
                same_for_all_threads(|| {
                    let y = reduced(reduction, &x, axis);
                    let mut d_x = vec![0.0; axis.elements()];
                    backward(
                        reduction,
                        &x,
                        axis,
                        Counted::All,
                        &y,
                        &y,
                        &mut d_x,
                        WriteMode::Add,
                    );
                    (y, d_x)
                });
            }
        }
    }
}
