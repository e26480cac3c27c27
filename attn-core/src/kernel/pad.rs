//! Tensors moved along an axis, which may get longer or shorter: padding and shifts.
//!
//! PyTorch: `F.pad(x, ..)`, `x.roll(..)` without what comes in at the other end.

use super::compiled::compiled;
use super::concat::copy_rows;
use super::parallel::{SMALL, for_each, rectangles};
use super::{Matrix, MatrixMut, axis::Axis};

/// A tensor moved along one of its axes: index `j` of the result, of which there are `len`, is index `j - by` of the operand.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// The axis of the operand.
    pub axis: Axis,
    /// Towards the end. Negative numbers move it towards the start.
    pub by: isize,
    /// The size of the axis of the result.
    pub len: usize,
}

impl Moved {
    /// The number of indices that both have, with the first of them in the operand and in the result.
    pub fn shared(self) -> [usize; 3] {
        let by = self.by.unsigned_abs();
        let [from, to] = match self.by < 0 {
            true => [by.min(self.axis.len), 0],
            false => [0, by.min(self.len)],
        };
        let count = (self.axis.len - from).min(self.len - to);
        [count, from, to]
    }

    /// The axis of the result.
    fn of_result(self) -> Axis {
        Axis {
            len: self.len,
            ..self.axis
        }
    }

    /// The numbers that the operand and the result share, in the operand.
    #[track_caller]
    pub fn in_operand<E>(self, x: &[E]) -> Matrix<'_, E> {
        let [count, from, _] = self.shared();
        let columns = self.axis.columns(from..from + count);
        self.axis.matrix(x).some_cols(columns)
    }

    /// The same, mutable.
    #[track_caller]
    pub fn in_operand_mut<E>(self, x: &mut [E]) -> MatrixMut<'_, E> {
        let [count, from, _] = self.shared();
        let Axis { outer, len, inner } = self.axis;
        let x = MatrixMut::new(x, outer, len * inner);
        let (_, rest) = x.split_cols(from * inner);
        rest.split_cols(count * inner).0
    }

    /// The same, in the result.
    #[track_caller]
    pub fn in_result<E>(self, y: &[E]) -> Matrix<'_, E> {
        let [count, _, to] = self.shared();
        let axis = self.of_result();
        axis.matrix(y).some_cols(axis.columns(to..to + count))
    }

    /// The numbers before these in the result, these, mutable, and those behind them.
    #[track_caller]
    fn parts_of_result<E>(self, y: &mut [E]) -> [MatrixMut<'_, E>; 3] {
        let [count, _, to] = self.shared();
        let Axis { outer, len, inner } = self.of_result();
        let y = MatrixMut::new(y, outer, len * inner);
        let (before, rest) = y.split_cols(to * inner);
        let (shared, behind) = rest.split_cols(count * inner);
        [before, shared, behind]
    }
}

compiled! {
    Pad:

    /// `y[o, j, i] = x[o, j - by, i]`, and `value` where `x` has no such index.
    ///
    /// # Panics
    /// If the lengths do not fit.
    #[track_caller]
    pub fn pad<E>(x: &[E], moved: Moved, value: E, y: &mut [E]) {
        let x = moved.in_operand(x);
        let [before, shared, behind] = moved.parts_of_result(y);
        copy_rows(x, shared);
        for part in [before, behind] {
            for_each(rectangles(part, SMALL), |(_, _, mut part)| part.fill(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::concat::add_rows;
    use crate::kernel::testing::*;

    #[test]
    fn a_tensor_is_moved_and_its_gradient_moved_back() {
        let sizes = [
            [2, 3, 2],
            [1, 5, 1],
            [3, 1, 700],
            [0, 2, 3],
            [2, 0, 3],
            [2, 3, 0],
        ];
        for [outer, len, inner] in sizes {
            for (by, to_len) in [
                (0, len),
                (1, len + 3),
                (-2, len + 1),
                (7, 2),
                (-9, 0),
                (2, len),
            ] {
                let axis = Axis { outer, len, inner };
                let moved = Moved {
                    axis,
                    by,
                    len: to_len,
                };
                let x = noise::<f64>(axis.elements(), 1);
                let source = |o: usize, j: usize, i: usize| {
                    let index = j as isize - by;
                    let is_there = (0..len as isize).contains(&index);
                    is_there.then(|| (o * len + index as usize) * inner + i)
                };
                let mut y = vec![f64::NAN; outer * to_len * inner];
                pad(&x, moved, 0.5, &mut y);
                let d_y = noise::<f64>(y.len(), 2);
                let mut d_x = vec![1.0; x.len()];
                let mut want = d_x.clone();
                for (at, (y, d_y)) in y.iter().zip(&d_y).enumerate() {
                    let (o, j, i) = (at / (to_len * inner), at / inner % to_len, at % inner);
                    assert_eq!(
                        *y,
                        source(o, j, i).map_or(0.5, |source| x[source]),
                        "{moved:?}"
                    );
                    if let Some(source) = source(o, j, i) {
                        want[source] += d_y;
                    }
                }
                add_rows(moved.in_result(&d_y), moved.in_operand_mut(&mut d_x));
                assert_eq!(d_x, want, "{moved:?}");
            }
        }
    }
}
