//! Calls that load transformed rows and columns of one head, or compute additive similarities of a tile.

use super::{HeadTransform, additive, head_transform};
use crate::kernel::{Buffer, Pooled};
use crate::simd::{Kernel, Matrix, MatrixMut, Vector};

/// [`head_transform::load_rows`] of one head.
pub(super) struct LoadRows<'a, E> {
    pub transform: &'a HeadTransform<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for LoadRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        head_transform::load_rows::<V>(self.transform, self.x, self.first, &mut self.to);
    }
}

/// [`head_transform::load_rows`] of several heads, row by row: in the order of memory, if they are side by side.
pub(super) struct LoadHeads<'a, E> {
    pub transform: &'a HeadTransform<'a, E>,
    /// `[len, width]` for every head.
    pub x: Vec<Matrix<'a, E>>,
    pub first: usize,
    /// As `x`.
    pub to: Vec<MatrixMut<'a, E>>,
}

impl<E: Pooled> Kernel for LoadHeads<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for row in 0..self.x.first().map_or(0, Matrix::rows) {
            let heads = self.x.iter().zip(&mut self.to).enumerate();
            for (head, (x, to)) in heads {
                head_transform::prefetch_ahead(*x, row);
                let transform = self.transform.of_head(head, to.cols());
                let place = self.first + row;
                head_transform::load_row::<V>(&transform, x.row(row), place, to.row_mut(row));
            }
        }
    }
}

/// [`head_transform::load_columns`] of one head.
pub(super) struct LoadColumns<'a, E> {
    pub transform: &'a HeadTransform<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for LoadColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        head_transform::load_columns::<V>(self.transform, self.x, self.first, &mut self.to);
    }
}

/// [`head_transform::backward_rows`] of one head.
pub(super) struct BackwardRows<'a, E> {
    pub transform: &'a HeadTransform<'a, E>,
    pub x: Matrix<'a, E>,
    pub first: usize,
    pub d: Matrix<'a, E>,
    pub to: MatrixMut<'a, E>,
    /// Empty if it is not requested.
    pub d_gain: &'a mut [E],
}

impl<E: Pooled> Kernel for BackwardRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Self {
            transform,
            x,
            first,
            d,
            ..
        } = self;
        let d_gain = Some(self.d_gain).filter(|d_gain| !d_gain.is_empty());
        head_transform::backward_rows::<V>(transform, x, first, d, &mut self.to, d_gain);
    }
}

/// [`head_transform::backward_rows`] of several heads, row by row.
pub(super) struct BackwardHeads<'a, E> {
    pub transform: &'a HeadTransform<'a, E>,
    /// `[len, width]` for every head.
    pub x: Vec<Matrix<'a, E>>,
    pub first: usize,
    /// As `x`.
    pub d: Vec<Matrix<'a, E>>,
    /// As `x`.
    pub to: Vec<MatrixMut<'a, E>>,
    /// Empty if it is not requested.
    pub d_gain: &'a mut [E],
}

impl<E: Pooled> Kernel for BackwardHeads<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let width = self.d.first().map_or(0, Matrix::cols);
        let mut biased = Buffer::uninit(width);
        let mut d_gain = Some(self.d_gain).filter(|d_gain| !d_gain.is_empty());
        for row in 0..self.x.first().map_or(0, Matrix::rows) {
            let heads = self.x.iter().zip(&self.d).zip(&mut self.to).enumerate();
            for (head, ((x, d), to)) in heads {
                head_transform::backward_row::<V>(
                    &self.transform.of_head(head, width),
                    x.row(row),
                    self.first + row,
                    d.row(row),
                    to.row_mut(row),
                    d_gain.as_deref_mut(),
                    &mut biased,
                );
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
