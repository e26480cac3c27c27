//! Sums and means over an axis, and numbers repeated along an axis: each is the derivative of the other.

use std::ops::Range;

use super::compiled::compiled;
use super::fold::fold_rows;
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut, Pooled, Real};
use crate::simd::slice::{self, Itself, Sum, load_any, store_any};
use crate::simd::{Kernel, Vector, call, run};

/// An axis of a row-major tensor, `[outer, len, inner]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The product of the sizes of the axes before it.
    pub outer: usize,
    /// Its size.
    pub len: usize,
    /// The product of the sizes of the axes after it.
    pub inner: usize,
}

impl Axis {
    /// One axis of a tensor with these sizes.
    ///
    /// # Panics
    /// If it has fewer axes.
    #[track_caller]
    pub fn of(sizes: &[usize], axis: usize) -> Self {
        Self {
            outer: sizes[..axis].iter().product(),
            len: sizes[axis],
            inner: sizes[axis + 1..].iter().product(),
        }
    }

    /// The range of the elements at one index of the outer axes.
    pub(super) fn block(self, outer: usize) -> Range<usize> {
        let block = self.len * self.inner;
        outer * block..(outer + 1) * block
    }

    /// The range of the elements at one index of the outer axes and at some of the axis.
    pub(super) fn part(self, outer: usize, run: Range<usize>) -> Range<usize> {
        let start = self.block(outer).start;
        start + run.start * self.inner..start + run.end * self.inner
    }

    /// A tensor with the axis as the matrix `[outer, len * inner]`.
    ///
    /// # Panics
    /// If it has another number of elements.
    #[track_caller]
    pub fn matrix<E>(self, x: &[E]) -> Matrix<'_, E> {
        Matrix::new(x, self.outer, self.len * self.inner)
    }

    /// The columns of [`matrix`](Self::matrix) with these indices of the axis.
    pub fn columns(self, indices: Range<usize>) -> Range<usize> {
        indices.start * self.inner..indices.end * self.inner
    }

    /// The number of elements.
    pub fn elements(self) -> usize {
        self.outer * self.len * self.inner
    }

    #[track_caller]
    pub(super) fn assert_lengths(self, with: usize, without: usize) {
        assert!(
            with == self.elements() && without == self.outer * self.inner,
            "{with} and {without} elements are not those with and without {self:?}"
        );
    }

    #[track_caller]
    pub(super) fn assert_equal_lengths(self, lengths: &[usize]) {
        let fits = lengths.iter().all(|&len| len == self.elements());
        assert!(fits, "{lengths:?} elements are not those of {self:?}");
    }

    #[track_caller]
    pub(super) fn assert_counted(self, counted: Counted<'_>) {
        let fits = match counted {
            Counted::All => true,
            Counted::First(counts) => {
                counts.len() == self.outer && counts.iter().all(|&count| count <= self.len)
            }
            Counted::Where(marks) => marks.len() == self.outer * self.len,
        };
        assert!(fits, "{counted:?} is not of {self:?}");
    }
}

/// The positions of an axis that a mean covers, for each index `o` of the axes before it.
#[derive(Clone, Copy, Debug)]
pub enum Counted<'a> {
    /// All of them.
    All,
    /// The first `counts[o]`.
    First(&'a [usize]),
    /// The positions where `marks[o, l]` is `true`.
    Where(&'a [bool]),
}

impl Counted<'_> {
    /// The number of these positions.
    pub fn count(self, axis: Axis, o: usize) -> usize {
        self.runs(axis, o).map(|run| run.len()).sum()
    }

    /// The positions, as ranges.
    pub fn runs(self, axis: Axis, o: usize) -> impl Iterator<Item = Range<usize>> {
        let (first, marks) = match self {
            Counted::All => (Some(0..axis.len), &[][..]),
            Counted::First(counts) => (Some(0..counts[o]), &[][..]),
            Counted::Where(marks) => (None, &marks[o * axis.len..][..axis.len]),
        };
        let mut end = 0;
        let marked = marks.chunk_by(|a, b| a == b).filter_map(move |run| {
            end += run.len();
            run[0].then_some(end - run.len()..end)
        });
        first.into_iter().chain(marked)
    }

    /// A mark for each position, `[outer, len]`.
    pub fn marks(self, axis: Axis) -> Vec<bool> {
        let mut marks = vec![false; axis.outer * axis.len];
        for o in 0..axis.outer {
            for run in self.runs(axis, o) {
                marks[o * axis.len..][run].fill(true);
            }
        }
        marks
    }
}

compiled! {
    Axes:

    /// `to[o, i]` is the sum of `x[o, l, i]` over the `l` that are `counted`. The others are not read. PyTorch: `x.sum(1)`.
    ///
    /// # Panics
    /// If the lengths do not fit, or a count exceeds the axis.
    #[track_caller]
    pub fn sum<E>(x: &[E], axis: Axis, counted: Counted<'_>, to: &mut [E]) {
        axis.assert_lengths(x.len(), to.len());
        axis.assert_counted(counted);
        for_each_part(axis, axis.inner, to, |o, to| {
            to.fill(E::ZERO);
            for run in counted.runs(axis, o) {
                fold_rows::<Sum, Itself, E>(&x[axis.part(o, run)], None, to);
            }
        });
    }

    /// Adds the derivative of [`sum`]: `d_x[o, l, i] += d_y[o, i]` for the `l` that are `counted`.
    ///
    /// # Panics
    /// As [`sum`].
    #[track_caller]
    pub fn sum_backward<E>(d_y: &[E], axis: Axis, counted: Counted<'_>, d_x: &mut [E]) {
        axis.assert_lengths(d_x.len(), d_y.len());
        axis.assert_counted(counted);
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let d_y = &d_y[o * axis.inner..][..axis.inner];
            for run in counted.runs(axis, o) {
                add_repeated(E::ONE, d_y, &mut d_x[axis.columns(run)]);
            }
        });
    }

    /// `to[o, l, i] = x[o, i]` for all `l`. PyTorch: `x.unsqueeze(1).expand(-1, len, -1)`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn repeat<E>(x: &[E], axis: Axis, to: &mut [E]) {
        axis.assert_lengths(to.len(), x.len());
        for_each_part(axis, axis.len * axis.inner, to, |o, to| {
            let row = &x[o * axis.inner..][..axis.inner];
            if let [number] = *row {
                return to.fill(number);
            }
            to.chunks_mut(axis.inner).for_each(|to| to.copy_from_slice(row));
        });
    }

    /// `to[o, i]` is the mean of `x[o, l, i]` over the `l` that are `counted`, and 0 if there are none. The others are not read.
    ///
    /// # Panics
    /// If the lengths do not fit, or a count exceeds the axis.
    #[track_caller]
    pub fn mean<E>(x: &[E], axis: Axis, counted: Counted<'_>, to: &mut [E]) {
        axis.assert_lengths(x.len(), to.len());
        axis.assert_counted(counted);
        for_each_part(axis, axis.inner, to, |o, to| {
            to.fill(E::ZERO);
            for run in counted.runs(axis, o) {
                fold_rows::<Sum, Itself, E>(&x[axis.part(o, run)], None, to);
            }
            call::scale(share(counted.count(axis, o)), to);
        });
    }

    /// Adds the derivative of [`mean`]: `d_x[o, l, i] += d_y[o, i] / count`, for the `l` that are `counted`.
    ///
    /// # Panics
    /// As [`mean`].
    #[track_caller]
    pub fn mean_backward<E>(d_y: &[E], axis: Axis, counted: Counted<'_>, d_x: &mut [E]) {
        axis.assert_lengths(d_x.len(), d_y.len());
        axis.assert_counted(counted);
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let d_y = &d_y[o * axis.inner..][..axis.inner];
            let share = share(counted.count(axis, o));
            for run in counted.runs(axis, o) {
                add_repeated(share, d_y, &mut d_x[axis.columns(run)]);
            }
        });
    }
}

/// Adds `scale * x` to every row of `to`. The rows have the length of `x`.
fn add_repeated<E: Pooled>(scale: E, x: &[E], to: &mut [E]) {
    let rows = rows_per_task(x.len());
    for_each(to.chunks_mut(rows * x.len()), |to| {
        run(AddRepeated { scale, x, to });
    });
}

struct AddRepeated<'a, E> {
    scale: E,
    x: &'a [E],
    to: &'a mut [E],
}

impl<E: Real> Kernel for AddRepeated<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let scale = V::splat(self.scale);
        if let [x] = *self.x {
            let x = V::splat(x);
            let to = self.to;
            for_lanes!(
                V,
                to.len(),
                [],
                [to],
                store_any(scale.mul_add(x, load_any(to)), to)
            );
            return;
        }
        for to in self.to.chunks_exact_mut(self.x.len()) {
            slice::axpy::<V>(self.scale, self.x, to);
        }
    }
}

/// `1 / count`, or any number if `count` is 0.
pub(super) fn share<E: Pooled>(count: usize) -> E {
    E::ONE / E::of_f64(count.max(1) as f64)
}

/// `body(o, to)` for every index `o` of the outer axes and its `width` elements of `to`.
pub(super) fn for_each_part<E: Pooled>(
    axis: Axis,
    width: usize,
    to: &mut [E],
    body: impl Fn(usize, &mut [E]) + Send + Sync,
) {
    for_each_task(axis, width, to, |outer, to| {
        for (o, to) in outer.zip(to.chunks_mut(width)) {
            body(o, to);
        }
    });
}

/// `body(outer, to)` for ranges of indices of the outer axes that are worth a thread, and their elements of `to`, `width` for each index.
pub(super) fn for_each_task<E: Pooled>(
    axis: Axis,
    width: usize,
    to: &mut [E],
    body: impl Fn(Range<usize>, &mut [E]) + Send + Sync,
) {
    if to.is_empty() {
        return;
    }
    let count = rows_per_task(axis.len * axis.inner);
    let tasks = to.chunks_mut(count * width).enumerate();
    for_each(tasks, |(index, to)| {
        let start = index * count;
        body(start..start + to.len() / width, to);
    });
}

/// `body(columns, to)` for ranges of columns that are worth a thread, and their numbers.
pub(super) fn for_some_columns<E: Pooled>(
    to: MatrixMut<'_, E>,
    body: impl Fn(Range<usize>, MatrixMut<'_, E>) + Send + Sync,
) {
    let count = rows_per_task(to.rows()).next_multiple_of(64);
    for_each(to.col_chunks(count).enumerate(), |(index, to)| {
        let start = index * count;
        body(start..start + to.cols(), to);
    });
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

    /// Sums over the marked positions, by the definition.
    fn naive(x: &[f64], axis: Axis, marks: &[bool]) -> Vec<f64> {
        let at = |o, l, i| x[(o * axis.len + l) * axis.inner + i];
        let is_marked = |o, l: &usize| marks[o * axis.len + l];
        let sum = |o, i| {
            (0..axis.len)
                .filter(|l| is_marked(o, l))
                .map(|l| at(o, l, i))
                .sum()
        };
        let places = (0..axis.outer).flat_map(|o| (0..axis.inner).map(move |i| (o, i)));
        places.map(|(o, i)| sum(o, i)).collect()
    }

    fn counts(axis: Axis) -> Vec<usize> {
        (0..axis.outer).map(|o| o * 7 % (axis.len + 1)).collect()
    }

    /// Marks with holes, also at the start and at the end. Some sequences have no mark.
    fn marks(axis: Axis) -> Vec<bool> {
        let mark = |place: usize| (place / axis.len) % 4 != 3 && place * place % 7 < 3;
        (0..axis.outer * axis.len).map(mark).collect()
    }

    /// Every variant of `Counted`, each with the equivalent marks.
    fn all_kinds<'a>(
        axis: Axis,
        counts: &'a [usize],
        marks: &'a [bool],
    ) -> [(Counted<'a>, Vec<bool>); 3] {
        let first = (0..axis.outer).flat_map(|o| (0..axis.len).map(move |l| l < counts[o]));
        [
            (Counted::All, vec![true; axis.outer * axis.len]),
            (Counted::First(counts), first.collect()),
            (Counted::Where(marks), marks.to_vec()),
        ]
    }

    fn count(marks: &[bool], axis: Axis, o: usize) -> f64 {
        let marks = &marks[o * axis.len..][..axis.len];
        marks.iter().filter(|mark| **mark).count().max(1) as f64
    }

    #[test]
    fn sums_and_means_reduce_an_axis() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                let what = format!("{axis:?} on {isa}");
                let x = noise::<f32>(axis.elements(), 1);
                let mut to = vec![f32::NAN; axis.outer * axis.inner];
                sum(&x, axis, Counted::All, &mut to);
                let want = naive(&wide(&x), axis, &vec![true; axis.outer * axis.len]);
                // Sums of up to 700 numbers, in several parts: some ten roundings of 30.
                assert_close(&what, &to, &want, Absolute(1e-4));

                let counts = counts(axis);
                let marks = marks(axis);
                for (counted, marks) in all_kinds(axis, &counts, &marks) {
                    mean(&x, axis, counted, &mut to);
                    let mut want = naive(&wide(&x), axis, &marks);
                    for (i, want) in want.iter_mut().enumerate() {
                        *want /= count(&marks, axis, i / axis.inner);
                    }
                    assert_close(&what, &to, &want, Absolute(1e-6));
                }
            }
        });
    }

    #[test]
    fn repeat_copies_along_an_axis_and_mean_backward_divides() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                let what = format!("{axis:?} on {isa}");
                let x = noise::<f32>(axis.outer * axis.inner, 1);
                let at = |place: usize| {
                    let block = place / axis.inner;
                    let i = place % axis.inner;
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
                let marks = marks(axis);
                for (counted, marks) in all_kinds(axis, &counts, &marks) {
                    to.fill(1.0);
                    mean_backward(&x, axis, counted, &mut to);
                    let want = (0..to.len()).map(at).map(|(o, l, x)| {
                        let share = f64::from(x) / count(&marks, axis, o);
                        let is_counted = marks[o * axis.len + l];
                        1.0 + if is_counted { share } else { 0.0 }
                    });
                    // Roundings of numbers up to 2.
                    assert_close(&what, &to, &want.collect::<Vec<_>>(), Absolute(3e-7));
                }
            }
        });
    }

    #[test]
    fn elements_that_are_not_counted_are_not_read() {
        let x = [1.0, f32::NAN, f32::NAN, f32::INFINITY];
        let mut to = [7.0; 2];
        mean(&x, axis([2, 2, 1]), Counted::First(&[1, 0]), &mut to);
        assert_eq!(to, [1.0, 0.0]);
        let x = [1.0, 2.0, f32::NAN, f32::NAN];
        mean(&x, axis([1, 2, 2]), Counted::First(&[1]), &mut to);
        assert_eq!(to, [1.0, 2.0]);
        let x = [f32::NAN, 2.0, f32::INFINITY, 4.0];
        let holes = [false, true, false, true];
        mean(&x, axis([1, 4, 1]), Counted::Where(&holes), &mut to[..1]);
        assert_eq!(to[0], 3.0);
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let axis = axis([90, 41, 33]);
        let x = noise::<f32>(axis.elements(), 1);
        same_for_all_threads(|| {
            let mut sums = vec![0.0; axis.outer * axis.inner];
            sum(&x, axis, Counted::All, &mut sums);
            let mut all = vec![0.0; axis.elements()];
            repeat(&sums, axis, &mut all);
            mean_backward(&sums, axis, Counted::Where(&marks(axis)), &mut all);
            all
        });
    }
}
