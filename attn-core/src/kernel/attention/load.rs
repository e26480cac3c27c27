//! Rows and columns of one head, prepared, and what the additive similarity does to tiles of them: as calls.

use super::layout::{some_cols, some_rows};
use super::{Prepare, additive, prepare};
use crate::kernel::Pooled;
use crate::simd::{Kernel, Matrix, MatrixMut, Vector};

/// [`prepare::load_rows`]
pub(super) struct LoadRows<'a, E> {
    pub prepare: &'a Prepare<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for LoadRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        prepare::load_rows::<V>(self.prepare, self.x, self.first, &mut self.to);
    }
}

/// [`prepare::load_rows`] for heads that lie side by side, row by row: in the order of memory.
pub(super) struct LoadHeads<'a, E> {
    pub prepare: &'a Prepare<'a, E>,
    /// `[len, heads * width]`
    pub x: Matrix<'a, E>,
    pub first: usize,
    /// `[len, width]` for every head.
    pub to: Vec<MatrixMut<'a, E>>,
}

impl<E: Pooled> Kernel for LoadHeads<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.x.rows() {
            let mut start = 0;
            for to in &mut self.to {
                let x = self.x.part(row..row + 1, start..start + to.cols());
                start += to.cols();
                let mut to = some_rows(to.reborrow(), row..row + 1);
                prepare::load_rows::<V>(self.prepare, x, self.first + row, &mut to);
            }
        }
    }
}

/// [`prepare::load_columns`]
pub(super) struct LoadColumns<'a, E> {
    pub prepare: &'a Prepare<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for LoadColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        prepare::load_columns::<V>(self.prepare, self.x, self.first, &mut self.to);
    }
}

/// [`prepare::backward_rows`]
pub(super) struct BackwardRows<'a, E> {
    pub prepare: &'a Prepare<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub d: Matrix<'a, E>,
    pub to: MatrixMut<'a, E>,
    pub d_gain: &'a mut [E],
}

impl<E: Pooled> Kernel for BackwardRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Self {
            prepare,
            x,
            first,
            d,
            ..
        } = self;
        prepare::backward_rows::<V>(prepare, x, first, d, &mut self.to, Some(self.d_gain));
    }
}

/// [`prepare::backward_rows`] for heads that lie side by side, row by row.
pub(super) struct BackwardHeads<'a, E> {
    pub prepare: &'a Prepare<'a, E>,
    /// `[len, heads * width]`
    pub x: Matrix<'a, E>,
    pub first: usize,
    /// `[len, width]` for every head.
    pub d: Vec<Matrix<'a, E>>,
    /// `[len, heads * width]`
    pub to: MatrixMut<'a, E>,
    pub d_gain: &'a mut [E],
}

impl<E: Pooled> Kernel for BackwardHeads<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.x.rows() {
            let mut start = 0;
            for d in &self.d {
                let (rows, cols) = (row..row + 1, start..start + d.cols());
                start += d.cols();
                let (x, d) = (
                    self.x.part(rows.clone(), cols.clone()),
                    d.some_rows(rows.clone()),
                );
                let mut to = some_cols(some_rows(self.to.reborrow(), rows), cols);
                let first = self.first + row;
                let gain = Some(&mut *self.d_gain);
                prepare::backward_rows::<V>(self.prepare, x, first, d, &mut to, gain);
            }
        }
    }
}

/// [`additive::scores`]
pub(super) struct AdditiveScores<'a, E> {
    pub q: Matrix<'a, E>,
    pub kt: Matrix<'a, E>,
    pub w: &'a [E],
    pub to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for AdditiveScores<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        additive::scores::<V>(self.q, self.kt, self.w, &mut self.to);
    }
}

/// [`additive::gradients`]
pub(super) struct AdditiveGradients<'a, E> {
    pub q: Matrix<'a, E>,
    pub kt: Matrix<'a, E>,
    pub w: &'a [E],
    pub d: Matrix<'a, E>,
    pub d_q: MatrixMut<'a, E>,
    pub d_kt: MatrixMut<'a, E>,
    pub d_w: &'a mut [E],
}

impl<E: Pooled> Kernel for AdditiveGradients<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Self { q, kt, w, d, .. } = self;
        additive::gradients::<V>(q, kt, w, d, &mut self.d_q, &mut self.d_kt, self.d_w);
    }
}
