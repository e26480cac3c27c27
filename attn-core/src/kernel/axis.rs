//! Sums and means over an axis, and numbers repeated along one: each is the derivative of the other.

use std::ops::Range;

use super::column_sums::add_column_sums;
use super::compiled::compiled;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, Pooled};
use crate::simd::call;

/// An axis of a row-major tensor, `[outer, len, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// How many places the axes before it have.
    pub outer: usize,
    /// Its size.
    pub len: usize,
    /// How many places the axes behind it have.
    pub inner: usize,
}

impl Axis {
    /// The elements at one place of the outer axes.
    fn block(self, outer: usize) -> Range<usize> {
        let block = self.len * self.inner;
        outer * block..(outer + 1) * block
    }

    /// How many elements there are.
    pub fn elements(self) -> usize {
        self.outer * self.len * self.inner
    }
}

compiled! {
    Axes:

    /// `to[o, i] = Σ x[o, .., i]`. PyTorch: `x.sum(1)`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn sum<E>(x: &[E], axis: Axis, to: &mut [E]) {
        assert_lengths(axis, x.len(), to.len());
        let block = |o: usize| &x[axis.block(o)];
        for_each_part(axis, axis.inner, to, |o, to| sum_rows(block(o), to));
    }

    /// `to[o, l, i] = x[o, i]` for all `l`. PyTorch: `x.unsqueeze(1).expand(-1, len, -1)`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn repeat<E>(x: &[E], axis: Axis, to: &mut [E]) {
        assert_lengths(axis, to.len(), x.len());
        for_each_part(axis, axis.len * axis.inner, to, |o, to| {
            let row = &x[o * axis.inner..][..axis.inner];
            if let [number] = *row {
                return to.fill(number);
            }
            to.chunks_mut(axis.inner).for_each(|to| to.copy_from_slice(row));
        });
    }

    /// `to[o, i]` is the mean of `x[o, l, i]` over the first `counts[o]` of all `l`, and 0 if that is none. The others are
    /// not read.
    ///
    /// # Panics
    /// If the lengths do not fit, or a count is beyond the axis.
    #[track_caller]
    pub fn mean<E>(x: &[E], axis: Axis, counts: &[usize], to: &mut [E]) {
        assert_lengths(axis, x.len(), to.len());
        assert_counts(axis, counts);
        for_each_part(axis, axis.inner, to, |o, to| {
            sum_rows(&x[axis.block(o)][..counts[o] * axis.inner], to);
            call::scale(share(counts[o]), to);
        });
    }

    /// Adds the derivative of [`mean`]: `d_x[o, l, i] += d_y[o, i] / counts[o]`, for the first `counts[o]` of all `l`.
    ///
    /// # Panics
    /// As [`mean`].
    #[track_caller]
    pub fn mean_backward<E>(d_y: &[E], axis: Axis, counts: &[usize], d_x: &mut [E]) {
        assert_lengths(axis, d_x.len(), d_y.len());
        assert_counts(axis, counts);
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let d_y = &d_y[o * axis.inner..][..axis.inner];
            for d_x in d_x.chunks_mut(axis.inner).take(counts[o]) {
                call::axpy(share(counts[o]), d_y, d_x);
            }
        });
    }
}

/// `1 / count`; of nothing it does not matter.
fn share<E: Pooled>(count: usize) -> E {
    E::ONE / E::of_f64(count.max(1) as f64)
}

/// `to = Σ rows of x`, which are as long as `to`.
fn sum_rows<E: Pooled>(x: &[E], to: &mut [E]) {
    to.fill(E::ZERO);
    match to {
        // A sum of single numbers, many at a time.
        [to] => *to = call::sum(x),
        _ => add_column_sums(Matrix::new(x, x.len() / to.len(), to.len()), to),
    }
}

/// `body(o, to)` for every place `o` of the outer axes and the `width` elements of `to` there.
fn for_each_part<E: Pooled>(
    axis: Axis,
    width: usize,
    to: &mut [E],
    body: impl Fn(usize, &mut [E]) + Send + Sync,
) {
    if to.is_empty() {
        return;
    }
    let count = rows_per_task(axis.len * axis.inner);
    let parts = to.chunks_mut(count * width).enumerate();
    for_each(parts, |(index, to)| {
        for (o, to) in (index * count..).zip(to.chunks_mut(width)) {
            body(o, to);
        }
    });
}

#[track_caller]
fn assert_lengths(axis: Axis, with: usize, without: usize) {
    assert!(
        with == axis.elements() && without == axis.outer * axis.inner,
        "{with} and {without} elements are not those with and without {axis:?}"
    );
}

#[track_caller]
fn assert_counts(axis: Axis, counts: &[usize]) {
    assert!(
        counts.len() == axis.outer && counts.iter().all(|&count| count <= axis.len),
        "the counts {counts:?} are not of {axis:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const SIZES: [[usize; 3]; 9] = [
        [1, 1, 1],
        [3, 5, 7],
        [1, 700, 1],
        [2, 130, 65],
        [900, 3, 33],
        [5, 1, 4],
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
    ];

    fn axis([outer, len, inner]: [usize; 3]) -> Axis {
        Axis { outer, len, inner }
    }

    /// Sums over the first `counts[o]` places, by the definition.
    fn naive(x: &[f64], axis: Axis, counts: &[usize]) -> Vec<f64> {
        let at = |o, l, i| x[(o * axis.len + l) * axis.inner + i];
        let mut sums = Vec::new();
        for (o, &count) in counts.iter().enumerate() {
            sums.extend((0..axis.inner).map(|i| (0..count).map(|l| at(o, l, i)).sum::<f64>()));
        }
        sums
    }

    fn counts(axis: Axis) -> Vec<usize> {
        (0..axis.outer).map(|o| o * 7 % (axis.len + 1)).collect()
    }

    #[test]
    fn sums_and_means() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                let what = format!("{axis:?} on {isa}");
                let x = noise::<f32>(axis.elements(), 1);
                let mut to = vec![f32::NAN; axis.outer * axis.inner];
                sum(&x, axis, &mut to);
                let want = naive(&wide(&x), axis, &vec![axis.len; axis.outer]);
                // Sums of up to 700 numbers, in several parts: some ten roundings of 30.
                assert_near(&to, &want, 1e-4, &what);

                let counts = counts(axis);
                mean(&x, axis, &counts, &mut to);
                let mut want = naive(&wide(&x), axis, &counts);
                for (i, want) in want.iter_mut().enumerate() {
                    *want /= counts[i / axis.inner].max(1) as f64;
                }
                assert_near(&to, &want, 1e-6, &what);
            }
        });
    }

    #[test]
    fn repeated_numbers_and_the_gradient_of_a_mean() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                let what = format!("{axis:?} on {isa}");
                let x = noise::<f32>(axis.outer * axis.inner, 1);
                let at = |place: usize| {
                    let (block, i) = (place / axis.inner, place % axis.inner);
                    (
                        block / axis.len,
                        block % axis.len,
                        x[block / axis.len * axis.inner + i],
                    )
                };
                let mut to = vec![f32::NAN; axis.elements()];
                repeat(&x, axis, &mut to);
                assert!((0..to.len()).all(|p| to[p] == at(p).2), "{what}");

                let counts = counts(axis);
                to.fill(1.0);
                mean_backward(&x, axis, &counts, &mut to);
                let want = (0..to.len()).map(at).map(|(o, l, x)| {
                    let share = f64::from(x) / counts[o].max(1) as f64;
                    1.0 + if l < counts[o] { share } else { 0.0 }
                });
                // Roundings of numbers up to 2.
                assert_near(&to, &want.collect::<Vec<_>>(), 3e-7, &what);
            }
        });
    }

    #[test]
    fn what_is_not_counted_is_not_read() {
        let x = [1.0, f32::NAN, f32::NAN, f32::INFINITY];
        let mut to = [7.0; 2];
        mean(&x, axis([2, 2, 1]), &[1, 0], &mut to);
        assert_eq!(to, [1.0, 0.0]);
        let x = [1.0, 2.0, f32::NAN, f32::NAN];
        mean(&x, axis([1, 2, 2]), &[1], &mut to);
        assert_eq!(to, [1.0, 2.0]);
    }

    #[test]
    fn threads_change_no_bit() {
        let axis = axis([90, 41, 33]);
        let x = noise::<f32>(axis.elements(), 1);
        same_for_all_threads(|| {
            let mut sums = vec![0.0; axis.outer * axis.inner];
            sum(&x, axis, &mut sums);
            let mut all = vec![0.0; axis.elements()];
            repeat(&sums, axis, &mut all);
            mean_backward(&sums, axis, &counts(axis), &mut all);
            all
        });
    }
}
