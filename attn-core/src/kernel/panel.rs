//! Matrices in pooled memory.

use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};

/// The padding of rows whose length is a large power of two: without it they would fall into the same cache sets.
const GAP: usize = 16;

/// The row stride for this number of columns.
fn stride(cols: usize) -> usize {
    if cols.is_multiple_of(128) {
        cols + GAP
    } else {
        cols
    }
}

/// A matrix in a buffer, whose shape changes from tile to tile.
#[derive(Debug)]
pub(super) struct Panel<E: Pooled> {
    memory: Buffer<E>,
    rows: usize,
    cols: usize,
}

impl<E: Pooled> Panel<E> {
    /// A matrix with undefined contents.
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        // A reshape to fewer columns may have a larger stride.
        let memory = Buffer::uninit(rows * (cols + GAP));
        Self { memory, rows, cols }
    }

    /// Changes the shape, to no more rows and columns than the first shape. The contents are undefined.
    pub(super) fn reshape(&mut self, rows: usize, cols: usize) -> MatrixMut<'_, E> {
        (self.rows, self.cols) = (rows, cols);
        self.write()
    }

    /// The matrix, to write.
    pub(super) fn write(&mut self) -> MatrixMut<'_, E> {
        let Self { rows, cols, .. } = *self;
        MatrixMut::strided(&mut self.memory, rows, cols, stride(cols))
    }

    /// The matrix, to read.
    pub(super) fn read(&self) -> Matrix<'_, E> {
        let Self { rows, cols, .. } = *self;
        Matrix::strided(&self.memory, rows, cols, stride(cols), 1)
    }
}
