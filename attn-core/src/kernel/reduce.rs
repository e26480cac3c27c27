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
        of: (Axis, Counted<'_>),
        y: &[E],
        d_y: &[E],
        d_x: &mut [E],
        into: WriteMode,
    ) {
        let (axis, counted) = of;
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
        // Each number counts, or it does not.
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
mod tests;
