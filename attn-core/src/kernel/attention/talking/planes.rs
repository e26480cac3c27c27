//! The pairs of a block of queries, of all heads.

use super::super::softmax_state::is_hidden;
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Real, Vector};

/// A matrix for every head, one after the other: `[heads, rows, cols]`.
pub(super) struct Planes<E: Pooled> {
    memory: Buffer<E>,
    heads: usize,
    rows: usize,
    cols: usize,
}

impl<E: Pooled> Planes<E> {
    /// Undefined numbers.
    pub(super) fn uninit(heads: usize, rows: usize, cols: usize) -> Self {
        Self {
            memory: Buffer::uninit(heads * rows * cols),
            heads,
            rows,
            cols,
        }
    }

    /// No numbers.
    pub(super) fn none() -> Self {
        Self::uninit(0, 0, 0)
    }

    /// Undefined numbers of the same shape, unless it has that.
    pub(super) fn resize_like(&mut self, other: &Self) {
        let same = [self.heads, self.rows, self.cols] == [other.heads, other.rows, other.cols];
        if !same {
            *self = Self::uninit(other.heads, other.rows, other.cols);
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// `[rows, cols]`
    pub(super) fn head(&self, h: usize) -> Matrix<'_, E> {
        let len = self.rows * self.cols;
        Matrix::new(&self.memory[h * len..][..len], self.rows, self.cols)
    }

    /// `[rows, cols]`
    pub(super) fn head_mut(&mut self, h: usize) -> MatrixMut<'_, E> {
        let len = self.rows * self.cols;
        MatrixMut::new(&mut self.memory[h * len..][..len], self.rows, self.cols)
    }

    /// `[rows, cols]` for every head.
    pub(super) fn heads_mut(&mut self) -> impl Iterator<Item = MatrixMut<'_, E>> {
        let Self { rows, cols, .. } = *self;
        equal_chunks(&mut self.memory, self.heads).map(move |head| MatrixMut::new(head, rows, cols))
    }

    /// `[heads, rows cols]`
    pub(super) fn pairs(&self) -> Matrix<'_, E> {
        Matrix::new(&self.memory, self.heads, self.rows * self.cols)
    }

    /// `[heads, rows cols]`
    pub(super) fn pairs_mut(&mut self) -> MatrixMut<'_, E> {
        MatrixMut::new(&mut self.memory, self.heads, self.rows * self.cols)
    }
}

impl<E: Pooled> Clone for Planes<E> {
    fn clone(&self) -> Self {
        let mut copy = Self::uninit(self.heads, self.rows, self.cols);
        copy.memory.copy_from_slice(&self.memory);
        copy
    }
}

/// Writes a number where a pair is hidden.
pub(super) struct WriteHidden<'a, E> {
    /// 0 or -∞, `[rows, cols]`
    pub hidden: Matrix<'a, E>,
    pub number: E,
    /// `[rows, cols]`
    pub to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for WriteHidden<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self {
            hidden,
            number,
            mut to,
        } = self;
        for row in 0..to.rows() {
            let hidden = hidden.row(row).chunks(V::LANES);
            for (hidden, to) in hidden.zip(to.row_mut(row).chunks_mut(V::LANES)) {
                let is_hidden = is_hidden(load_any::<V>(hidden));
                store_any(V::select(is_hidden, V::splat(number), load_any(to)), to);
            }
        }
    }
}
