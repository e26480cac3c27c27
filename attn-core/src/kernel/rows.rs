//! Operations on rows, with the elementwise loops around them, in one pass over memory.
//!
//! A norm or a softmax computes each row of its result from the same row of its operand. The loop before it is its prologue, the loop
//! behind it its epilogue:
//!
//! ```text
//! x = a + b                prologue
//! y = norm(x)
//! z = y * (c + 1) + d      epilogue
//! ```
//!
//! A task computes all of them for a chunk of rows, which stay in the cache meanwhile. The results have the bits of three passes.

use super::loops::{Loop, Read, Write, assert_lens, some, some_behind};
use super::parallel::{for_each, rows_per_task};
use super::{Kernels, Matrix, MatrixMut, Real, assert_same_shape};

/// The rows that an operation reads: a matrix, or what a loop [assigns](assign).
pub struct Source<'a, E>(Operand<'a, E>);

enum Operand<'a, E> {
    InMemory(Matrix<'a, E>),
    Computed(Part<'a, E>),
}

/// Where an operation writes its rows: a matrix, perhaps with a loop behind it that may read [`Rows`](super::loops::Rows) and may be
/// written [over them](super::loops::InPlace).
pub struct Sink<'a, E> {
    rows: MatrixMut<'a, E>,
    epilogue: Option<Part<'a, E>>,
}

/// A loop in the pass of an operation on rows.
pub struct Assignment<'a, L, E, const N: usize> {
    body: Operands<'a, L, E, N>,
    to: Write<'a, E>,
}

/// `to = of(x)`, before an operation on rows, which reads it, or behind one.
pub fn assign<'a, L: Loop<N, 1>, E: Kernels, const N: usize>(
    of: L,
    x: [Read<'a, E>; N],
    to: impl Into<Write<'a, E>>,
) -> Assignment<'a, L, E, N> {
    let body = Operands { of, x };
    let to = to.into();
    Assignment { body, to }
}

/// A loop with its operands.
struct Operands<'a, L, E, const N: usize> {
    of: L,
    x: [Read<'a, E>; N],
}

/// The loop is no type parameter of an operation, which is compiled once.
trait Body<E>: Sync {
    /// Fails unless all operands have so many elements.
    fn assert_len(&self, len: usize);

    /// Computes the elements from `first` on.
    fn compute(&self, first: usize, to: Write<'_, E>);

    /// The same behind `rows`.
    fn compute_behind(&self, first: usize, rows: &mut [E], to: Write<'_, E>);
}

impl<L: Loop<N, 1>, E: Kernels, const N: usize> Body<E> for Operands<'_, L, E, N> {
    #[track_caller]
    fn assert_len(&self, len: usize) {
        assert_lens(&self.x, len);
    }

    fn compute(&self, first: usize, to: Write<'_, E>) {
        some(&self.of, first, &self.x, &mut [to]);
    }

    fn compute_behind(&self, first: usize, rows: &mut [E], to: Write<'_, E>) {
        some_behind(&self.of, first, self.x, rows, to);
    }
}

/// The next elements of an assignment.
struct Part<'a, E> {
    body: &'a dyn Body<E>,
    to: Write<'a, E>,
}

impl<'a, E> Part<'a, E> {
    fn of<L: Loop<N, 1>, const N: usize>(all: &'a mut Assignment<'_, L, E, N>) -> Self
    where
        E: Kernels,
    {
        Self {
            body: &all.body,
            to: all.to.reborrow(),
        }
    }

    #[track_caller]
    fn assert_len(&self, len: usize) {
        self.body.assert_len(len);
        self.to.assert_len(len);
    }

    fn next(&mut self, len: usize) -> Self {
        Self {
            body: self.body,
            to: self.to.next(len),
        }
    }
}

impl<'a, E> From<Matrix<'a, E>> for Source<'a, E> {
    fn from(x: Matrix<'a, E>) -> Self {
        Self(Operand::InMemory(x))
    }
}

impl<'a, L: Loop<N, 1>, E: Kernels, const N: usize> From<&'a mut Assignment<'_, L, E, N>>
    for Source<'a, E>
{
    fn from(prologue: &'a mut Assignment<'_, L, E, N>) -> Self {
        Self(Operand::Computed(Part::of(prologue)))
    }
}

impl<'a, E> From<MatrixMut<'a, E>> for Sink<'a, E> {
    fn from(rows: MatrixMut<'a, E>) -> Self {
        let epilogue = None;
        Self { rows, epilogue }
    }
}

impl<'a, L: Loop<N, 1>, E: Kernels, const N: usize>
    From<(MatrixMut<'a, E>, &'a mut Assignment<'_, L, E, N>)> for Sink<'a, E>
{
    fn from((rows, epilogue): (MatrixMut<'a, E>, &'a mut Assignment<'_, L, E, N>)) -> Self {
        let epilogue = Some(Part::of(epilogue));
        Self { rows, epilogue }
    }
}

impl<E> Sink<'_, E> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows.rows()
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.rows.cols()
    }
}

impl<E> Operand<'_, E> {
    #[track_caller]
    fn assert_shape(&self, rows: usize, cols: usize) {
        match self {
            Self::InMemory(x) => assert_same_shape(*x, rows, cols),
            Self::Computed(x) => x.assert_len(rows * cols),
        }
    }

    /// So many rows from `first` on, which are the next ones.
    fn next(&mut self, first: usize, rows: usize, cols: usize) -> Self {
        match self {
            Self::InMemory(x) => Self::InMemory(x.some_rows(first..first + rows)),
            Self::Computed(x) => Self::Computed(x.next(rows * cols)),
        }
    }

    /// The same in memory.
    fn compute(&mut self, first: usize, rows: usize, cols: usize) -> Matrix<'_, E> {
        match self {
            Self::InMemory(x) => *x,
            Self::Computed(Part { body, to }) => {
                body.compute(first * cols, to.reborrow());
                Matrix::new(to.as_slice(), rows, cols)
            }
        }
    }
}

/// Calls `body` for chunks of [`rows_per_task`] rows, with their operand, their result, and an item of `others`. The threads share
/// the chunks.
///
/// # Panics
/// If the shapes differ.
#[inline(always)]
#[track_caller]
pub(super) fn for_chunks<E: Real, T: Send>(
    Source(mut x): Source<'_, E>,
    Sink { rows, mut epilogue }: Sink<'_, E>,
    others: impl Iterator<Item = T>,
    body: impl Fn(Matrix<'_, E>, MatrixMut<'_, E>, T) + Send + Sync,
) {
    let cols = rows.cols();
    x.assert_shape(rows.rows(), cols);
    if let Some(z) = &epilogue {
        z.assert_len(rows.rows() * cols);
    }
    let chunk = rows_per_task(cols);
    let chunks = rows.row_chunks(chunk).zip(others).enumerate();
    let tasks = chunks.map(|(index, (y, other))| {
        let first = index * chunk;
        let x = x.next(first, y.rows(), cols);
        let z = epilogue.as_mut().map(|z| z.next(y.rows() * cols));
        (first, x, y, z, other)
    });
    for_each(tasks, |(first, mut x, mut y, z, other)| {
        body(x.compute(first, y.rows(), cols), y.reborrow(), other);
        if let Some(Part { body, to }) = z {
            body.compute_behind(first * cols, y.as_mut_slice(), to);
        }
    });
}

#[cfg(test)]
mod tests;
