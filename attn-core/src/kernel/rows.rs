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
pub struct Source<'a, E>(Rows<'a, E>);

enum Rows<'a, E> {
    InMemory(Matrix<'a, E>),
    Computed(Write<'a, E>, &'a dyn Body<E>),
}

/// Where an operation writes its rows: a matrix, perhaps with a loop behind it that may read [`Rows`](super::loops::Rows) and may be
/// written [over them](super::loops::InPlace).
pub struct Sink<'a, E> {
    rows: MatrixMut<'a, E>,
    epilogue: Option<(Write<'a, E>, &'a dyn Body<E>)>,
}

/// A loop that an operation on rows runs.
pub struct Assignment<'a, L, E, const N: usize> {
    body: Operands<'a, L, E, N>,
    to: Write<'a, E>,
}

/// `to = of(x)`, before an operation on rows that reads it, or behind one.
pub fn assign<'a, L: Loop<N, 1>, E: Kernels, const N: usize>(
    of: L,
    x: [Read<'a, E>; N],
    to: impl Into<Write<'a, E>>,
) -> Assignment<'a, L, E, N> {
    Assignment {
        body: Operands { of, x },
        to: to.into(),
    }
}

/// A loop with its operands.
struct Operands<'a, L, E, const N: usize> {
    of: L,
    x: [Read<'a, E>; N],
}

/// It is no type parameter of operations: they are compiled once.
trait Body<E>: Sync {
    /// Fails unless all operands have so many elements.
    fn assert_len(&self, len: usize);

    /// Computes the elements from `first` on.
    fn prologue(&self, first: usize, to: Write<'_, E>);

    /// The same behind the rows.
    fn epilogue(&self, first: usize, rows: &mut [E], to: Write<'_, E>);
}

impl<L: Loop<N, 1>, E: Kernels, const N: usize> Body<E> for Operands<'_, L, E, N> {
    #[track_caller]
    fn assert_len(&self, len: usize) {
        assert_lens(&self.x, len);
    }

    fn prologue(&self, first: usize, to: Write<'_, E>) {
        some(&self.of, first, self.x, [to]);
    }

    fn epilogue(&self, first: usize, rows: &mut [E], to: Write<'_, E>) {
        some_behind(&self.of, first, self.x, rows, to);
    }
}

impl<'a, E> From<Matrix<'a, E>> for Source<'a, E> {
    fn from(x: Matrix<'a, E>) -> Self {
        Self(Rows::InMemory(x))
    }
}

impl<'a, L: Loop<N, 1>, E: Kernels, const N: usize> From<&'a mut Assignment<'_, L, E, N>>
    for Source<'a, E>
{
    fn from(prologue: &'a mut Assignment<'_, L, E, N>) -> Self {
        Self(Rows::Computed(prologue.to.reborrow(), &prologue.body))
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
        let epilogue: (_, &dyn Body<E>) = (epilogue.to.reborrow(), &epilogue.body);
        let epilogue = Some(epilogue);
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

impl<E> Rows<'_, E> {
    #[track_caller]
    fn assert_shape(&self, rows: usize, cols: usize) {
        match self {
            Self::InMemory(x) => assert_same_shape(*x, rows, cols),
            Self::Computed(x, body) => {
                x.assert_len(rows * cols);
                body.assert_len(rows * cols);
            }
        }
    }

    /// So many rows from `first` on, which are the next ones.
    fn next(&mut self, first: usize, rows: usize, cols: usize) -> Self {
        match self {
            Self::InMemory(x) => Self::InMemory(x.some_rows(first..first + rows)),
            Self::Computed(x, body) => Self::Computed(x.next(rows * cols), *body),
        }
    }

    /// The same in memory.
    fn compute(&mut self, first: usize, rows: usize, cols: usize) -> Matrix<'_, E> {
        match self {
            Self::InMemory(x) => *x,
            Self::Computed(x, body) => {
                body.prologue(first * cols, x.reborrow());
                Matrix::new(x.as_slice(), rows, cols)
            }
        }
    }
}

/// Calls `body` for chunks of [`rows_per_task`] rows, with what it reads, where it writes, and a part of something else. The threads
/// share the chunks.
///
/// # Panics
/// If the shapes differ.
#[inline(always)]
#[track_caller]
pub(super) fn for_chunks<E: Real, P: Send>(
    Source(mut x): Source<'_, E>,
    to: Sink<'_, E>,
    parts: impl Iterator<Item = P>,
    body: impl Fn(Matrix<'_, E>, MatrixMut<'_, E>, P) + Send + Sync,
) {
    let cols = to.cols();
    x.assert_shape(to.rows(), cols);
    let chunk = rows_per_task(cols);
    let mut epilogue = to.epilogue;
    if let Some((z, body)) = &epilogue {
        z.assert_len(to.rows.rows() * cols);
        body.assert_len(to.rows.rows() * cols);
    }
    let chunks = to.rows.row_chunks(chunk).zip(parts).enumerate();
    let tasks = chunks.map(|(index, (y, part))| {
        let first = index * chunk;
        let x = x.next(first, y.rows(), cols);
        let epilogue = epilogue.as_mut();
        let epilogue = epilogue.map(|(z, body)| (z.next(y.rows() * cols), *body));
        (first, x, y, epilogue, part)
    });
    for_each(tasks, |(first, mut x, mut y, epilogue, part)| {
        body(x.compute(first, y.rows(), cols), y.reborrow(), part);
        if let Some((z, body)) = epilogue {
            body.epilogue(first * cols, y.as_mut_slice(), z);
        }
    });
}

#[cfg(test)]
mod tests;
