//! Numbers along an axis by index, and sums by index: each is the derivative of the other.
//!
//! ```text
//! y[a, k, b]            = x[a, ids[..], b]
//! dx[a, ids[..], b]    += dy[a, k, b]
//! ```
//!
//! `a` and `b` are the axes of `x` before and after the indexed one, `k` are new ones. The axes of `ids` are some of `a` and `b`, and all of
//! `k`. PyTorch: `x.index_select(dim, ids)` with new axes alone, `torch.take_along_dim` where all axes of `x` are among those of `ids`.

use smallvec::SmallVec;

use super::compiled::compiled;
use super::parallel::{SMALL, for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};
use crate::simd::{Kernel, Vector, WriteMode, run, slice};

/// The columns that one thread adds to: a few cache lines.
const COLUMNS: usize = 64;

/// The number of axes that need no heap memory: a tensor of dfdx has no more.
type List<T> = SmallVec<[T; 6]>;

/// The shapes of a tensor, of indices along one of its axes, and of the numbers there.
///
/// A row are the numbers along the last axes of the tensor that no index chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexing {
    /// The axes of the result that choose a row.
    axes: List<Side>,
    /// The axis that is indexed.
    indexed: Side,
    /// The numbers of a row.
    inner: usize,
    /// The axes before the indexed one, as one.
    blocks: usize,
    /// The rows of a block in the tensor, and in the result.
    rows: [usize; 2],
    ids: usize,
}

/// An axis: its size, and the distances of its elements in the indices, and in the rows of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    size: usize,
    in_ids: usize,
    in_rows: usize,
}

impl Indexing {
    /// Indices of the sizes `ids` along one axis of a tensor of the sizes `x`. For each axis of `ids`, `shared` has the axis of `x` that it is,
    /// or `None` for a new one.
    ///
    /// # Panics
    /// If there is no such axis, if two axes of `ids` are the same axis of `x`, or if sizes differ.
    #[track_caller]
    pub fn of(x: &[usize], axis: usize, ids: &[usize], shared: &[Option<usize>]) -> Self {
        let fits = |(&size, shared): (&usize, &Option<usize>)| match *shared {
            Some(of) => of != axis && x.get(of) == Some(&size),
            None => true,
        };
        let mut matched: List<usize> = shared.iter().copied().flatten().collect();
        let last = matched.iter().copied().max().unwrap_or(0).max(axis);
        matched.sort_unstable();
        let is_once = matched.windows(2).all(|pair| pair[0] != pair[1]);
        let fits = ids.len() == shared.len() && ids.iter().zip(shared).all(fits);
        assert!(
            axis < x.len() && fits && is_once,
            "indices {ids:?} along axis {axis} of {x:?} with the axes {shared:?}"
        );
        let in_ids = |of: Option<usize>, place: usize| match of {
            Some(of) => {
                let own = shared.iter().position(|shared| *shared == Some(of));
                own.map_or(0, |own| ids[own + 1..].iter().product())
            }
            None => ids[place + 1..].iter().product(),
        };
        let of_x = |of: usize| Side {
            size: x[of],
            in_ids: in_ids(Some(of), 0),
            in_rows: x[of + 1..=last].iter().product(),
        };
        let news = shared.iter().enumerate().filter(|(_, of)| of.is_none());
        let news = news.map(|(place, _)| Side {
            size: ids[place],
            in_ids: in_ids(None, place),
            in_rows: 0,
        });
        let news: List<Side> = news.collect();
        let behind: usize = x[axis + 1..=last].iter().product();
        let new: usize = news.iter().map(|side| side.size).product();
        let before = (0..axis).map(of_x);
        Self {
            axes: before
                .chain(news)
                .chain((axis + 1..=last).map(of_x))
                .collect(),
            indexed: of_x(axis),
            inner: x[last + 1..].iter().product(),
            blocks: x[..axis].iter().product(),
            rows: [x[axis] * behind, new * behind],
            ids: ids.iter().product(),
        }
    }

    /// The number of elements of the tensor.
    pub fn elements(&self) -> usize {
        self.blocks * self.rows[0] * self.inner
    }

    /// The number of elements of the result.
    pub fn elements_of_result(&self) -> usize {
        self.blocks * self.rows[1] * self.inner
    }

    /// The element of the tensor that is this one of the result.
    ///
    /// # Panics
    /// If the index there is not below the size of the axis.
    #[track_caller]
    pub fn source(&self, ids: &[usize], element: usize) -> usize {
        self.row(ids, element / self.inner) * self.inner + element % self.inner
    }

    /// The row of the tensor that is this one of the result.
    #[inline]
    #[track_caller]
    fn row(&self, ids: &[usize], mut row: usize) -> usize {
        let mut at = 0;
        let mut from = 0;
        for side in self.axes.iter().rev() {
            let index = row % side.size;
            row /= side.size;
            at += index * side.in_ids;
            from += index * side.in_rows;
        }
        let id = ids[at];
        assert!(
            id < self.indexed.size,
            "index {id} of {}",
            self.indexed.size
        );
        from + id * self.indexed.in_rows
    }

    #[track_caller]
    fn assert_lengths(&self, x: usize, ids: usize, y: usize) {
        assert!(
            x == self.elements() && ids == self.ids && y == self.elements_of_result(),
            "{x} numbers, {ids} indices and {y} numbers are not those of {self:?}"
        );
    }
}

compiled! {
    Gather:

    /// `y = x[.., ids, ..]`, or adds that to `y`.
    ///
    /// # Panics
    /// If the lengths do not fit, or an index is not below the size of the axis.
    #[track_caller]
    pub fn gather<E>(x: &[E], ids: &[usize], of: &Indexing, y: &mut [E], into: WriteMode) {
        of.assert_lengths(x.len(), ids.len(), y.len());
        if y.is_empty() {
            return;
        }
        let rows = rows_per_task(of.inner);
        let parts = y.chunks_mut(rows * of.inner).enumerate();
        for_each(parts, |(index, y)| {
            run(Copied { x, ids, of, start: index * rows, y, into });
        });
    }

    /// Adds the derivative of [`gather`]: `x[.., ids, ..] += y`, for all elements of `y` in their order.
    ///
    /// Each thread owns some blocks, or some columns of one, and processes all indices of these, so that repeated ones are added in order.
    ///
    /// # Panics
    /// As [`gather`].
    #[track_caller]
    pub fn scatter_add<E>(y: &[E], ids: &[usize], of: &Indexing, x: &mut [E]) {
        of.assert_lengths(x.len(), ids.len(), y.len());
        if x.is_empty() || y.is_empty() {
            return;
        }
        let [rows, added] = of.rows;
        let blocks = rows_per_task(added * of.inner);
        let columns = if added * of.inner <= SMALL { of.inner } else { COLUMNS };
        let parts = x.chunks_mut(blocks * rows * of.inner).enumerate();
        for_each(parts, |(index, x)| {
            for (block, x) in x.chunks_mut(rows * of.inner).enumerate() {
                let block = index * blocks + block;
                let x = MatrixMut::new(x, rows, of.inner).col_chunks(columns);
                for_each(x.enumerate(), |(index, x)| {
                    let cols = index * columns..index * columns + x.cols();
                    let y = Matrix::new(y, of.blocks * added, of.inner).some_cols(cols);
                    run(Added { y, ids, of, block, x });
                });
            }
        });
    }
}

struct Copied<'a, E> {
    x: &'a [E],
    ids: &'a [usize],
    of: &'a Indexing,
    /// The first row.
    start: usize,
    y: &'a mut [E],
    into: WriteMode,
}

impl<E: Real> Kernel for Copied<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let inner = self.of.inner;
        for (row, y) in self.y.chunks_exact_mut(inner).enumerate() {
            let from = self.of.row(self.ids, self.start + row) * inner;
            let x = &self.x[from..from + inner];
            match self.into {
                WriteMode::Overwrite => y.copy_from_slice(x),
                WriteMode::Add => slice::axpy::<V>(E::ONE, x, y),
            }
        }
    }
}

struct Added<'a, E> {
    y: Matrix<'a, E>,
    ids: &'a [usize],
    of: &'a Indexing,
    block: usize,
    x: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Added<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let [rows, added] = self.of.rows;
        let first = self.block * rows;
        for row in self.block * added..(self.block + 1) * added {
            let to = self.of.row(self.ids, row) - first;
            slice::axpy::<V>(E::ONE, self.y.row(row), self.x.row_mut(to));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    /// Sizes of the tensor, the axis, sizes of the indices, and which axes of the tensor these are.
    type Case = (
        &'static [usize],
        usize,
        &'static [usize],
        &'static [Option<usize>],
    );

    const CASES: [Case; 14] = [
        (&[5, 3], 0, &[4], &[None]),
        (&[5, 3], 0, &[2, 3], &[None, None]),
        (&[5, 3], 1, &[4], &[None]),
        (&[2, 5, 3], 1, &[2], &[Some(0)]),
        (&[2, 5, 3], 1, &[2, 4], &[Some(0), None]),
        (&[2, 5, 3], 1, &[4, 2], &[None, Some(0)]),
        (&[2, 5, 3], 1, &[2, 4, 3], &[Some(0), None, Some(2)]),
        (&[2, 5, 3, 4], 1, &[3, 2], &[Some(2), Some(0)]),
        (&[5, 2, 3], 0, &[3, 2], &[Some(2), None]),
        (&[13, 300], 0, &[700], &[None]),
        (&[40, 20, 33], 1, &[40, 30], &[Some(0), None]),
        (&[0, 3], 0, &[0], &[None]),
        (&[2, 0, 3], 0, &[4], &[None]),
        (&[2, 3, 0], 1, &[2], &[Some(0)]),
    ];

    fn ids(case: Case) -> Vec<usize> {
        let count = case.2.iter().product();
        // Repeated, and out of order.
        (0..count)
            .map(|i| i * i * 7 % case.0[case.1].max(1))
            .collect()
    }

    /// The sizes of the result, with the element of the tensor for each of its elements, by the definition.
    fn naive((x, axis, sizes, shared): Case, ids: &[usize]) -> Vec<usize> {
        let at = |index: &[usize], sizes: &[usize]| {
            let both = index.iter().zip(sizes);
            both.fold(0, |at, (index, size)| at * size + index)
        };
        let new: Vec<usize> = (0..sizes.len()).filter(|i| shared[*i].is_none()).collect();
        let mut of_result = x[..axis].to_vec();
        of_result.extend(new.iter().map(|place| sizes[*place]));
        of_result.extend(&x[axis + 1..]);
        let count: usize = of_result.iter().product();
        let source = |element: usize| {
            let mut rest = element;
            let mut index = vec![0; of_result.len()];
            for (index, size) in index.iter_mut().zip(&of_result).rev() {
                *index = rest % size;
                rest /= size;
            }
            // The axes behind the indexed one stand behind the new ones.
            let of_x = |axis_of: usize| match axis_of < axis {
                true => index[axis_of],
                false => index[axis_of + new.len() - 1],
            };
            let of_ids: Vec<usize> = (0..sizes.len())
                .map(|place| match shared[place] {
                    Some(of) => of_x(of),
                    None => index[axis + new.iter().position(|new| *new == place).unwrap()],
                })
                .collect();
            let id = ids[at(&of_ids, sizes)];
            let of_x: Vec<usize> = (0..x.len())
                .map(|of| if of == axis { id } else { of_x(of) })
                .collect();
            at(&of_x, x)
        };
        (0..count).map(source).collect()
    }

    fn indexing(case: Case) -> Indexing {
        Indexing::of(case.0, case.1, case.2, case.3)
    }

    #[test]
    fn numbers_are_gathered_and_gradients_scattered() {
        on_every_isa(|isa| {
            for case in CASES {
                let of = indexing(case);
                let ids = ids(case);
                let sources = naive(case, &ids);
                let what = format!("{case:?} on {isa}");
                assert_eq!(of.elements_of_result(), sources.len(), "{what}");
                let x = noise::<f32>(of.elements(), 1);
                let mut y = vec![f32::NAN; sources.len()];
                gather(&x, &ids, &of, &mut y, WriteMode::Overwrite);
                let want: Vec<f32> = sources.iter().map(|from| x[*from]).collect();
                assert_eq!(y, want, "{what}");
                y.fill(1.0);
                gather(&x, &ids, &of, &mut y, WriteMode::Add);
                assert!(y.iter().zip(&want).all(|(y, x)| *y == 1.0 + x), "{what}");

                // Sums of these integers are exact.
                let y: Vec<f32> = (0..sources.len()).map(|i| (i % 19) as f32).collect();
                let mut want = vec![1.0; x.len()];
                for (from, y) in sources.iter().zip(&y) {
                    want[*from] += y;
                }
                let mut sums = vec![1.0; x.len()];
                scatter_add(&y, &ids, &of, &mut sums);
                assert_eq!(sums, want, "{what}");
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        for case in &CASES[9..11] {
            let of = indexing(*case);
            let ids = ids(*case);
            let x = noise::<f32>(of.elements(), 1);
            let d_y = noise::<f32>(of.elements_of_result(), 2);
            same_for_all_threads(|| {
                let mut y = vec![0.0; d_y.len()];
                gather(&x, &ids, &of, &mut y, WriteMode::Overwrite);
                let mut d_x = vec![0.0; x.len()];
                scatter_add(&d_y, &ids, &of, &mut d_x);
                (y, d_x)
            });
        }
    }

    #[test]
    #[should_panic(expected = "index 5 of 5")]
    fn an_index_beyond_the_axis_reads_no_other_row() {
        let of = Indexing::of(&[2, 5], 1, &[2], &[Some(0)]);
        gather(
            &[0.0_f32; 10],
            &[5, 0],
            &of,
            &mut [0.0; 2],
            WriteMode::Overwrite,
        );
    }
}
