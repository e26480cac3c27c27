//! Rows of all heads, one head after the other.
//!
//! Tensors have the heads side by side: the rows of one head are a few numbers each, far from each other in memory. What is
//! read more than once is copied first, a few whole rows at a time.

use super::layout::{shares, some_rows};
use super::load::LoadRows;
use super::plan::{Head, chunks};
use super::{Attention, Prepare};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// Rows of a task.
const ROWS: usize = 64;

/// Rows whose heads are visited one after the other.
pub(super) const STRIP: usize = 8;

/// `[batch, heads, rows, width]`
pub(super) struct ByHead<E: Pooled> {
    memory: Buffer<E>,
    heads: usize,
    rows: usize,
    width: usize,
}

impl<E: Pooled> ByHead<E> {
    /// `x`: prepared or not, `[batch * query, heads * width]`.
    pub fn load(attention: &Attention<'_, E>, prepare: &Prepare<'_, E>, x: Matrix<'_, E>) -> Self {
        let sizes = attention.sizes;
        let (heads, rows) = (sizes.heads, sizes.query);
        let width = x.cols().checked_div(heads).unwrap_or(0);
        let mut memory = Buffer::stale(x.rows() * x.cols());
        let mut tasks = Vec::new();
        for (b, sequence) in shares(&mut memory, sizes.batch).into_iter().enumerate() {
            let mut to: Vec<_> = shares(sequence, heads)
                .into_iter()
                .map(|to| MatrixMut::new(to, rows, width).row_chunks(ROWS).into_iter())
                .collect();
            for range in chunks(0..rows, ROWS) {
                let to: Vec<_> = to.iter_mut().filter_map(Iterator::next).collect();
                tasks.push((b * rows..(b + 1) * rows, range, to));
            }
        }
        attention.for_each(tasks, |(sequence, range, mut to)| {
            let x = x.some_rows(sequence).some_rows(range.clone());
            for strip in chunks(0..x.rows(), STRIP) {
                for (h, to) in to.iter_mut().enumerate() {
                    run(LoadRows {
                        prepare,
                        x: x.part(strip.clone(), h * width..(h + 1) * width),
                        first: range.start + strip.start,
                        to: some_rows(to.reborrow(), strip.clone()),
                    });
                }
            }
        });
        Self {
            memory,
            heads,
            rows,
            width,
        }
    }

    /// `[rows, width]`
    pub fn of(&self, head: Head) -> Matrix<'_, E> {
        let len = self.rows * self.width;
        let first = (head.b * self.heads + head.h) * len;
        Matrix::new(&self.memory[first..][..len], self.rows, self.width)
    }
}
