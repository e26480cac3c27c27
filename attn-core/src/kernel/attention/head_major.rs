//! Rows of all heads of a sequence, head by head.
//!
//! In a tensor the heads are interleaved: the rows of one head are short and far apart in memory. Rows that are normalized, rotated or rounded for
//! several blocks of keys, and gradients that are summed over tasks, are stored head by head.

use super::heads::row_chunks;
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};

/// `[heads, rows, width]`
pub(super) struct HeadMajor<E: Pooled> {
    memory: Buffer<E>,
    heads: usize,
    rows: usize,
    width: usize,
}

impl<E: Pooled> HeadMajor<E> {
    /// Undefined numbers.
    pub(super) fn uninit(heads: usize, rows: usize, width: usize) -> Self {
        Self {
            memory: Buffer::uninit(heads * rows * width),
            heads,
            rows,
            width,
        }
    }

    /// `[rows, width]`
    pub(super) fn of(&self, h: usize) -> Matrix<'_, E> {
        let len = self.rows * self.width;
        Matrix::new(&self.memory[h * len..][..len], self.rows, self.width)
    }

    /// `[rows, width]` for every head.
    pub(super) fn heads(&mut self) -> impl Iterator<Item = MatrixMut<'_, E>> {
        let rows = self.rows;
        let width = self.width;
        equal_chunks(&mut self.memory, self.heads)
            .map(move |head| MatrixMut::new(head, rows, width))
    }

    /// Chunks of this many rows, of every head.
    pub(super) fn row_chunks(
        &mut self,
        rows: usize,
    ) -> impl Iterator<Item = Vec<MatrixMut<'_, E>>> {
        row_chunks(self.heads(), rows)
    }
}
