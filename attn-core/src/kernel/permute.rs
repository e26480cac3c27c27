//! Tensors with their axes in another order.
//!
//! PyTorch: `x.permute(axes)`, as a copy.
//!
//! Neighbouring axes that stay neighbours are one axis, and axes of size 1 are none. If the last axis stays the last, the result is a
//! list of contiguous runs of the operand. Otherwise, every matrix of the axes that are last before and after is transposed.

use smallvec::SmallVec;

use super::compiled::compiled;
use super::parallel::{SMALL, for_each, rectangles};
use super::{Matrix, MatrixMut, Real};
use crate::simd::transpose_here;
use crate::simd::{Kernel, Vector, WriteMode, run, slice};

/// The columns of the part of a thread where matrices are transposed. With [`SMALL`] elements it has 64 rows: some cache lines of every
/// row of the operand.
const COLUMNS: usize = 256;

compiled! {
    Permute:

    /// `to = x` or `to += x`, where axis `i` of `to` is axis `axes[i]` of `x`, a tensor of these sizes.
    ///
    /// # Panics
    /// If the lengths do not fit, or `axes` does not have every axis once.
    #[track_caller]
    pub fn permute<E>(x: &[E], sizes: &[usize], axes: &[usize], to: &mut [E], into: WriteMode) {
        let steps = Step::of_axes(sizes, axes);
        let count = sizes.iter().product::<usize>();
        assert!(x.len() == count && to.len() == count, "{} and {} numbers of {sizes:?}", x.len(), to.len());
        if to.is_empty() {
            return;
        }
        let plan = Plan::new(steps);
        let cols = count_of(&plan.middle) * plan.last.size;
        let width = if plan.has_runs() { SMALL } else { COLUMNS };
        let to = MatrixMut::new(to, count / cols, cols);
        for_each(rectangles(to, width), |(row, col, to)| {
            run(Part { x, plan: &plan, row, col, to, into });
        });
    }
}

/// An axis of the result: its size, and the distance of its elements in the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    size: usize,
    stride: usize,
}

/// The number of axes that need no heap memory: a tensor of dfdx has no more.
type List<T> = SmallVec<[T; 6]>;

impl Step {
    /// The axes of the result, as few as possible.
    #[track_caller]
    fn of_axes(sizes: &[usize], axes: &[usize]) -> List<Self> {
        let mut sorted = List::from_slice(axes);
        sorted.sort_unstable();
        assert!(
            sorted.into_iter().eq(0..sizes.len()),
            "{axes:?} are not the axes of {sizes:?} in another order"
        );
        let mut steps = List::<Self>::new();
        for &axis in axes.iter().filter(|&&axis| sizes[axis] != 1) {
            let next = Self {
                size: sizes[axis],
                stride: sizes[axis + 1..].iter().product(),
            };
            match steps.last_mut() {
                Some(last) if last.stride == next.size * next.stride => {
                    last.size *= next.size;
                    last.stride = next.stride;
                }
                _ => steps.push(next),
            }
        }
        steps
    }
}

fn count_of(steps: &[Step]) -> usize {
    steps.iter().map(|step| step.size).product()
}

/// The result is the matrix `[outer * height, middle * last]`.
#[derive(Debug)]
struct Plan {
    outer: List<Step>,
    /// The size of the axis that is the last of the operand, or 1 if it is the last of the result, too.
    height: usize,
    middle: List<Step>,
    last: Step,
}

impl Plan {
    fn new(mut steps: List<Step>) -> Self {
        let last = steps.pop().unwrap_or(Step { size: 1, stride: 1 });
        match steps.iter().position(|step| step.stride == 1) {
            Some(height) => Self {
                middle: List::from_slice(&steps[height + 1..]),
                height: steps[height].size,
                outer: List::from_slice(&steps[..height]),
                last,
            },
            None => Self {
                outer: steps,
                height: 1,
                middle: List::new(),
                last,
            },
        }
    }

    /// Whether the elements of the last axis are contiguous in the operand.
    fn has_runs(&self) -> bool {
        self.last.stride == 1
    }
}

/// The offsets in the operand of the elements of some axes of the result, in order.
struct Offsets<'a> {
    steps: &'a [Step],
    place: List<usize>,
    offset: usize,
}

impl<'a> Offsets<'a> {
    fn starting_at(mut index: usize, steps: &'a [Step]) -> Self {
        let mut place: List<usize> = steps.iter().map(|_| 0).collect();
        let mut offset = 0;
        for (place, step) in place.iter_mut().zip(steps).rev() {
            *place = index % step.size;
            index /= step.size;
            offset += *place * step.stride;
        }
        Self {
            steps,
            place,
            offset,
        }
    }

    /// Goes on to the next element, or from the last one to the first.
    fn advance(&mut self) {
        for (place, step) in self.place.iter_mut().zip(self.steps).rev() {
            *place += 1;
            self.offset += step.stride;
            if *place < step.size {
                return;
            }
            self.offset -= step.size * step.stride;
            *place = 0;
        }
    }
}

/// A rectangle of the result.
struct Part<'a, E> {
    x: &'a [E],
    plan: &'a Plan,
    row: usize,
    col: usize,
    to: MatrixMut<'a, E>,
    into: WriteMode,
}

impl<E: Real> Kernel for Part<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let plan = self.plan;
        let mut blocks = Offsets::starting_at(self.row / plan.height, &plan.outer);
        let mut row = self.row % plan.height;
        let mut rest = self.to;
        while rest.rows() > 0 {
            let rows = rest.rows().min(plan.height - row);
            let (to, below) = rest.split_rows(rows);
            let x = &self.x[blocks.offset + row..];
            write_block::<V>(plan, x, self.col, to, self.into);
            (row, rest) = (0, below);
            blocks.advance();
        }
    }
}

/// Writes rows of one index of the outer axes, from the column `col` on.
#[inline(always)]
fn write_block<V: Vector>(
    plan: &Plan,
    x: &[V::Element],
    col: usize,
    to: MatrixMut<'_, V::Element>,
    into: WriteMode,
) {
    let Step { size, stride } = plan.last;
    let mut middles = Offsets::starting_at(col / size, &plan.middle);
    let mut col = col % size;
    let mut rest = to;
    while rest.cols() > 0 {
        let cols = rest.cols().min(size - col);
        let (mut to, right) = rest.split_cols(cols);
        let x = &x[middles.offset + col * stride..];
        if !plan.has_runs() {
            let x = Matrix::strided(x, to.cols(), to.rows(), stride, 1);
            transpose_here::<V>(x, &mut to, into);
        } else {
            let x = &x[..to.cols()];
            match into {
                WriteMode::Overwrite => to.row_mut(0).copy_from_slice(x),
                WriteMode::Add => slice::axpy::<V>(V::Element::ONE, x, to.row_mut(0)),
            }
        }
        (col, rest) = (0, right);
        middles.advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    /// Sizes and orders: with runs and without, of axes that merge, of size 1 and 0, and larger than the part of a thread.
    const CASES: [(&[usize], &[usize]); 17] = [
        (&[], &[]),
        (&[5], &[0]),
        (&[3, 4], &[1, 0]),
        (&[200, 300], &[1, 0]),
        (&[2, 20_000], &[1, 0]),
        (&[20_000, 2], &[1, 0]),
        (&[1, 3, 4], &[2, 0, 1]),
        (&[3, 1, 4], &[2, 1, 0]),
        (&[2, 3, 4], &[0, 1, 2]),
        (&[5, 7, 33], &[1, 0, 2]),
        (&[3, 2, 40_000], &[1, 0, 2]),
        (&[5, 70, 33], &[0, 2, 1]),
        (&[17, 40, 65], &[2, 1, 0]),
        (&[3, 5, 7, 9], &[2, 3, 0, 1]),
        (&[3, 5, 70, 9], &[3, 1, 2, 0]),
        (&[2, 3, 5, 1, 7, 2], &[4, 2, 3, 0, 5, 1]),
        (&[3, 0, 2], &[2, 1, 0]),
    ];

    /// The result, by the definition.
    fn naive(x: &[f32], sizes: &[usize], axes: &[usize]) -> Vec<f32> {
        let source = |mut index: usize| {
            let mut offset = 0;
            for &axis in axes.iter().rev() {
                let stride: usize = sizes[axis + 1..].iter().product();
                offset += index % sizes[axis] * stride;
                index /= sizes[axis];
            }
            offset
        };
        (0..x.len()).map(|index| x[source(index)]).collect()
    }

    #[test]
    fn axes_are_in_the_new_order() {
        on_every_isa(|isa| {
            for (sizes, axes) in CASES {
                let x = noise::<f32>(sizes.iter().product(), 1);
                let want = naive(&x, sizes, axes);
                let mut to = vec![f32::NAN; x.len()];
                permute(&x, sizes, axes, &mut to, WriteMode::Overwrite);
                assert_eq!(to, want, "{sizes:?} by {axes:?} on {isa}");
                to.fill(1.0);
                permute(&x, sizes, axes, &mut to, WriteMode::Add);
                let want: Vec<f32> = want.iter().map(|x| x + 1.0).collect();
                assert_eq!(to, want, "{sizes:?} by {axes:?}, added, on {isa}");
            }
        });
    }

    #[test]
    fn few_axes_are_left() {
        let steps = |sizes: &[usize], axes: &[usize]| {
            let steps = Step::of_axes(sizes, axes);
            steps
                .iter()
                .map(|step| (step.size, step.stride))
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(&[2, 3, 4], &[0, 1, 2]), [(24, 1)]);
        assert_eq!(steps(&[2, 3, 4], &[1, 2, 0]), [(12, 1), (2, 12)]);
        assert_eq!(steps(&[2, 1, 4], &[1, 0, 2]), [(8, 1)]);
        assert_eq!(steps(&[2, 3, 4], &[1, 0, 2]), [(3, 4), (2, 12), (4, 1)]);
    }

    #[test]
    #[should_panic(expected = "[0, 0] are not the axes of [2, 3] in another order")]
    fn every_axis_is_named_once() {
        permute(
            &[0.0; 6],
            &[2, 3],
            &[0, 0],
            &mut [0.0; 6],
            WriteMode::Overwrite,
        );
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(17 * 40 * 65, 1);
        same_for_all_threads(|| {
            let mut to = x.clone();
            permute(&x, &[17, 40, 65], &[2, 1, 0], &mut to, WriteMode::Add);
            permute(&x, &[17, 40, 65], &[1, 0, 2], &mut to, WriteMode::Add);
            to
        });
    }
}
