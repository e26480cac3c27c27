//! Memory of a task.

use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};

/// A matrix in a buffer, whose shape changes from tile to tile.
#[derive(Debug)]
pub(super) struct Panel<E: Pooled> {
    memory: Buffer<E>,
    rows: usize,
    cols: usize,
}

impl<E: Pooled> Panel<E> {
    /// A matrix that holds whatever it holds.
    pub fn new(rows: usize, cols: usize) -> Self {
        let memory = Buffer::stale(rows * cols);
        Self { memory, rows, cols }
    }

    /// Another shape, not larger than the first. What it holds is stale.
    pub fn reshape(&mut self, rows: usize, cols: usize) -> MatrixMut<'_, E> {
        (self.rows, self.cols) = (rows, cols);
        self.write()
    }

    /// The matrix, to write.
    pub fn write(&mut self) -> MatrixMut<'_, E> {
        let Self { rows, cols, .. } = *self;
        MatrixMut::new(&mut self.memory[..rows * cols], rows, cols)
    }

    /// The matrix, to read.
    pub fn read(&self) -> Matrix<'_, E> {
        let Self { rows, cols, .. } = *self;
        Matrix::new(&self.memory[..rows * cols], rows, cols)
    }
}
