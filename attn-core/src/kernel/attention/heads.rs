//! Where the vectors of heads stand in memory.

use std::ops::Range;

use crate::kernel::{Matrix, MatrixMut};

/// How the vectors of all heads stand in a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadLayout {
    /// `[batch * rows, heads * width]`: the heads are side by side, as a projection writes them. That is `[batch, rows, heads, width]`.
    #[default]
    SideBySide,
    /// `[batch * heads * rows, width]`: one head after the other, as PyTorch has them. That is `[batch, heads, rows, width]`.
    HeadMajor,
    /// `[rows, batch * heads * width]`: the sequences are side by side, too. That is `[rows, batch, heads, width]`.
    SequenceFirst,
}

impl HeadLayout {
    /// The numbers of heads below each other, and side by side, in the order of sequences and then of heads.
    fn grid(self, batch: usize, heads: usize) -> [usize; 2] {
        match self {
            Self::SideBySide => [batch, heads],
            Self::HeadMajor => [batch * heads, 1],
            Self::SequenceFirst => [1, batch * heads],
        }
    }

    /// The rows and columns of a matrix of vectors.
    pub(super) fn shape(self, [batch, heads, rows, width]: [usize; 4]) -> (usize, usize) {
        let [down, across] = self.grid(batch, heads);
        (down * rows, across * width)
    }
}

/// A matrix, or a mutable one, with the vectors of all heads. A matrix as such has them side by side.
#[derive(Clone, Copy, Debug)]
pub struct Heads<M> {
    /// The vectors.
    pub matrix: M,
    /// How they stand there.
    pub layout: HeadLayout,
}

impl<M> Heads<M> {
    /// `[batch * heads * rows, width]`
    pub fn head_major(matrix: M) -> Self {
        let layout = HeadLayout::HeadMajor;
        Self { matrix, layout }
    }
}

impl<M> From<M> for Heads<M> {
    fn from(matrix: M) -> Self {
        let layout = HeadLayout::SideBySide;
        Self { matrix, layout }
    }
}

impl<'a, E> Heads<Matrix<'a, E>> {
    /// `[rows, width]`: the vectors of head `h` of sequence `b`, of so many.
    pub(super) fn of(&self, [batch, heads]: [usize; 2], b: usize, h: usize) -> Matrix<'a, E> {
        let [down, across] = self.layout.grid(batch, heads);
        let rows = self.matrix.rows() / down;
        let width = self.matrix.cols() / across;
        let i = b * heads + h;
        let row = i / across * rows;
        let col = i % across * width;
        self.matrix.part(row..row + rows, col..col + width)
    }

    /// `[rows, width]` for every head of sequence `b`.
    pub(super) fn of_sequence(&self, of: [usize; 2], b: usize) -> Vec<Matrix<'a, E>> {
        (0..of[1]).map(|h| self.of(of, b, h)).collect()
    }
}

impl<'a, E> Heads<MatrixMut<'a, E>> {
    /// `[rows, width]` for every head of every sequence.
    pub(super) fn split(
        self,
        [batch, heads]: [usize; 2],
    ) -> impl Iterator<Item = MatrixMut<'a, E>> {
        let [down, across] = self.layout.grid(batch, heads);
        parts(self.matrix, down, across)
    }
}

/// Chunks of this many rows, of every matrix.
pub(super) fn row_chunks<'a, E: 'a>(
    of: impl IntoIterator<Item = MatrixMut<'a, E>>,
    rows: usize,
) -> impl Iterator<Item = Vec<MatrixMut<'a, E>>> {
    side_by_side(of.into_iter().map(move |matrix| matrix.row_chunks(rows)))
}

/// The next items of all iterators, until all have ended.
pub(super) fn side_by_side<I: Iterator>(
    iterators: impl IntoIterator<Item = I>,
) -> impl Iterator<Item = Vec<I::Item>> {
    let mut iterators: Vec<_> = iterators.into_iter().collect();
    std::iter::from_fn(move || {
        let next: Vec<_> = iterators.iter_mut().filter_map(Iterator::next).collect();
        (!next.is_empty()).then_some(next)
    })
}

/// A range of rows of every matrix.
pub(super) fn some_rows_of<'a, E>(
    of: &[Matrix<'a, E>],
    range: &Range<usize>,
) -> Vec<Matrix<'a, E>> {
    of.iter().map(|x| x.some_rows(range.clone())).collect()
}

/// A matrix as `down` times `across` parts of the same shape, row by row.
pub(super) fn parts<E>(
    x: MatrixMut<'_, E>,
    down: usize,
    across: usize,
) -> impl Iterator<Item = MatrixMut<'_, E>> {
    let rows = x.rows();
    let cols = x.cols();
    // `None` after the matrix has been given away.
    let mut below = Some(x);
    let rows = (0..down).map_while(move |_| {
        let (above, rest) = below.take()?.split_rows(rows / down);
        below = Some(rest);
        Some(above)
    });
    rows.flat_map(move |row| {
        let mut right = Some(row);
        (0..across).map_while(move |_| {
            let (part, rest) = right.take()?.split_cols(cols / across);
            right = Some(rest);
            Some(part)
        })
    })
}
