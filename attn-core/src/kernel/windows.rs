//! Sliding windows along an axis.
//!
//! PyTorch: `x.unfold(axis, size, step)`, with the axis of a window directly behind that of the windows.

use std::ops::Range;

use super::MatrixMut;
use super::axis::{Axis, for_each_part};
use super::compiled::compiled;
use super::parallel::{SMALL, for_each, rectangles, rows_per_task};
use crate::simd::call;

/// Windows of an axis: `[outer, len, inner]` becomes `[outer, count, size, inner]`.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// The axis of the operand.
    pub axis: Axis,
    /// The length of a window.
    pub size: usize,
    /// The distance from one window to the next.
    pub step: usize,
}

impl Windows {
    /// The number of windows that lie in the axis as a whole.
    pub const fn count_in(len: usize, size: usize, step: usize) -> usize {
        match len.checked_sub(size) {
            Some(rest) if step > 0 => rest / step + 1,
            _ => 0,
        }
    }

    /// The number of windows.
    pub fn count(self) -> usize {
        Self::count_in(self.axis.len, self.size, self.step)
    }

    /// The windows that have some of these indices of the axis.
    fn around(self, indices: &Range<usize>) -> Range<usize> {
        let first = (indices.start + 1).saturating_sub(self.size);
        let end = indices.end.div_ceil(self.step).min(self.count());
        first.div_ceil(self.step).min(end)..end
    }

    #[track_caller]
    fn assert_lengths(self, x: usize, y: usize) {
        let fits = x == self.axis.elements()
            && y == self.axis.outer * self.count() * self.size * self.axis.inner;
        assert!(fits, "{x} and {y} elements are not those of {self:?}");
    }

    /// Adds to the indices of the axis from `start` on, at one index of the outer axes, what the windows have there.
    fn add<E: super::Real>(self, d_y: &[E], start: usize, d_x: &mut [E]) {
        let inner = self.axis.inner;
        let indices = start..start + d_x.len() / inner;
        for window in self.around(&indices) {
            let of_window = window * self.step..window * self.step + self.size;
            let from = of_window.start.max(indices.start);
            let to = of_window.end.min(indices.end);
            if from < to {
                let d_y = &d_y[(window * self.size + from - of_window.start) * inner..];
                let d_x = &mut d_x[(from - start) * inner..(to - start) * inner];
                call::axpy(E::ONE, &d_y[..d_x.len()], d_x);
            }
        }
    }
}

compiled! {
    Unfold:

    /// `y[o, w, k, i] = x[o, w * step + k, i]`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn windows<E>(x: &[E], windows: Windows, y: &mut [E]) {
        windows.assert_lengths(x.len(), y.len());
        let count = windows.count();
        let Windows { axis: Axis { outer, len, inner }, size, step } = windows;
        let to = MatrixMut::new(y, outer * count, size * inner);
        for_each(rectangles(to, SMALL), |(row, col, mut to)| {
            for i in 0..to.rows() {
                let (o, window) = ((row + i) / count, (row + i) % count);
                let start = (o * len + window * step) * inner + col;
                let to = to.row_mut(i);
                to.copy_from_slice(&x[start..start + to.len()]);
            }
        });
    }

    /// Adds the derivative of [`windows`]: `d_x[o, w * step + k, i] += d_y[o, w, k, i]`.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn windows_backward<E>(d_y: &[E], windows: Windows, d_x: &mut [E]) {
        windows.assert_lengths(d_x.len(), d_y.len());
        if d_x.is_empty() || d_y.is_empty() {
            return;
        }
        let axis = windows.axis;
        let block = axis.len * axis.inner;
        let of_block = windows.count() * windows.size * axis.inner;
        let of = |o: usize| &d_y[o * of_block..][..of_block];
        if block <= SMALL {
            for_each_part(axis, block, d_x, |o, d_x| windows.add(of(o), 0, d_x));
            return;
        }
        let rows = rows_per_task(axis.inner);
        let tasks = d_x.chunks_mut(block).enumerate().flat_map(|(o, d_x)| {
            let parts = d_x.chunks_mut(rows * axis.inner).enumerate();
            parts.map(move |(part, d_x)| (o, part * rows, d_x))
        });
        for_each(tasks, |(o, start, d_x)| windows.add(of(o), start, d_x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const SIZES: [[usize; 5]; 11] = [
        [1, 1, 1, 1, 1],
        [2, 7, 3, 3, 2],
        [2, 7, 3, 3, 1],
        [3, 10, 2, 2, 4],
        [1, 3000, 5, 4, 3],
        [700, 6, 1, 2, 1],
        [1, SMALL + 5, 1, 9, 2],
        [2, 3, 2, 4, 1],
        [0, 3, 2, 2, 1],
        [2, 0, 2, 2, 1],
        [2, 3, 0, 2, 1],
    ];

    #[test]
    fn windows_overlap_and_their_gradients_add_up() {
        for [outer, len, inner, size, step] in SIZES {
            let axis = Axis { outer, len, inner };
            let of = Windows { axis, size, step };
            let x = noise::<f64>(axis.elements(), 1);
            let count = of.count();
            let mut y = vec![f64::NAN; outer * count * size * inner];
            windows(&x, of, &mut y);
            let d_y = noise::<f64>(y.len(), 2);
            let mut d_x = vec![1.0; x.len()];
            let mut want = d_x.clone();
            for o in 0..outer {
                for (w, k) in (0..count).flat_map(|w| (0..size).map(move |k| (w, k))) {
                    for i in 0..inner {
                        let source = (o * len + w * step + k) * inner + i;
                        let at = ((o * count + w) * size + k) * inner + i;
                        assert_eq!(y[at], x[source], "{of:?}");
                        want[source] += d_y[at];
                    }
                }
            }
            windows_backward(&d_y, of, &mut d_x);
            assert_eq!(d_x, want, "{of:?}");
        }
    }

    #[test]
    fn as_many_windows_as_fit() {
        for len in 0..12 {
            for (size, step) in [(1, 1), (3, 1), (3, 2), (2, 5)] {
                let fits = |w: &usize| w * step + size <= len;
                assert_eq!(
                    Windows::count_in(len, size, step),
                    (0..20).filter(fits).count()
                );
            }
        }
    }

    #[test]
    fn gradients_have_the_same_bits_for_any_number_of_threads() {
        let axis = Axis {
            outer: 2,
            len: 3000,
            inner: 7,
        };
        let of = Windows {
            axis,
            size: 5,
            step: 2,
        };
        let d_y = noise::<f32>(2 * of.count() * 5 * 7, 1);
        same_for_all_threads(|| {
            let mut d_x = vec![0.0; axis.elements()];
            windows_backward(&d_y, of, &mut d_x);
            d_x
        });
    }
}
