//! Where the vectors of heads stand in memory, and the partition of results into parts for tasks.

use std::ops::Range;

use super::plan::Head;
use super::{Attention, Normalizer, Sizes};
use crate::kernel::{Matrix, MatrixMut, Pooled, parallel};

/// The number of multiplications and additions below which a second thread does not pay: some tens of microseconds.
const SMALL: usize = 1 << 20;

impl Sizes {
    /// The number of query heads of a key head.
    pub(super) fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// The query heads of a key head.
    pub(super) fn heads_of(self, b: usize, kv: usize) -> impl Iterator<Item = Head> {
        let group = self.group();
        (kv * group..(kv + 1) * group).map(move |h| Head { b, h })
    }
}

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
    fn shape(self, [batch, heads, rows, width]: [usize; 4]) -> (usize, usize) {
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
    let chunks = of.into_iter().map(move |matrix| matrix.row_chunks(rows));
    let mut chunks: Vec<_> = chunks.collect();
    std::iter::from_fn(move || {
        let next: Vec<_> = chunks.iter_mut().filter_map(Iterator::next).collect();
        (!next.is_empty()).then_some(next)
    })
}

impl<E> Attention<'_, E> {
    /// Numbers of some queries of a head, of `[batch, heads, query]`.
    pub(super) fn rows<'x>(&self, x: &'x [E], head: Head, queries: &Range<usize>) -> &'x [E] {
        let Sizes { heads, query, .. } = self.sizes;
        &x[(head.b * heads + head.h) * query..][queries.clone()]
    }

    /// `[queries, key]`: numbers of some queries of a head, of `[batch, heads, query, key]`.
    pub(super) fn pairs<'x>(
        &self,
        x: &'x [E],
        head: Head,
        queries: &Range<usize>,
    ) -> Matrix<'x, E> {
        let Sizes {
            heads, query, key, ..
        } = self.sizes;
        let first = (head.b * heads + head.h) * query + queries.start;
        let rows = queries.len();
        Matrix::new(&x[first * key..][..rows * key], rows, key)
    }
}

impl<E: Pooled> Attention<'_, E> {
    /// `body(task)` for every task, on several threads if that pays. The tasks are the whole work of this many key heads.
    pub(super) fn for_each<T: Send>(
        &self,
        key_heads: usize,
        tasks: impl IntoIterator<Item = T>,
        body: impl Fn(T) + Send + Sync,
    ) {
        let sizes = self.sizes;
        let pairs = key_heads * sizes.group() * sizes.query * sizes.key;
        if pairs * (sizes.width + sizes.value_width) < SMALL {
            tasks.into_iter().for_each(body);
        } else {
            parallel::for_each(tasks, body);
        }
    }

    /// Panics if the arguments do not fit the sizes: `q`, `k`, `v`, the output, `lse` and the weights.
    #[track_caller]
    pub(super) fn check(
        &self,
        [q, k, v]: [Heads<Matrix<'_, E>>; 3],
        out: (HeadLayout, (usize, usize)),
        lse: Option<usize>,
        weights: Option<usize>,
    ) {
        let Sizes {
            batch,
            heads,
            kv_heads,
            query,
            key,
            width,
            value_width,
        } = self.sizes;
        assert!(
            kv_heads * self.sizes.group() == heads,
            "{heads} heads of queries, {kv_heads} of keys"
        );
        assert!(
            self.value.norm.is_none() && self.value.rope.is_none(),
            "values are neither normalised nor rotated"
        );
        let of = |x: Heads<Matrix<'_, E>>| (x.layout, (x.matrix.rows(), x.matrix.cols()));
        let shapes = [
            ("queries", of(q), [batch, heads, query, width]),
            ("keys", of(k), [batch, kv_heads, key, width]),
            ("values", of(v), [batch, kv_heads, key, value_width]),
            ("output", out, [batch, heads, query, value_width]),
        ];
        for (name, (layout, found), sizes) in shapes {
            assert_eq!(found, layout.shape(sizes), "rows and columns of the {name}");
        }
        if let Normalizer::Sink(sink) = self.normalizer {
            assert_eq!(sink.len(), heads, "a sink for every head");
        }
        let rows = batch * heads * query;
        assert!(lse.is_none_or(|lse| lse == rows), "an lse for every query");
        assert!(
            weights.is_none_or(|weights| weights == rows * key),
            "a weight for every pair"
        );
    }
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

/// A slice as `count` parts of the same length.
pub(super) fn equal_chunks<E>(x: &mut [E], count: usize) -> impl Iterator<Item = &mut [E]> {
    let len = x.len();
    let mut rest = x;
    (0..count).map(move |_| {
        let (share, others) = std::mem::take(&mut rest).split_at_mut(len / count);
        rest = others;
        share
    })
}

/// A range of rows of every matrix.
pub(super) fn some_rows_of<'a, E>(
    of: &[Matrix<'a, E>],
    range: &Range<usize>,
) -> Vec<Matrix<'a, E>> {
    of.iter().map(|x| x.some_rows(range.clone())).collect()
}

/// A range of rows.
pub(super) fn some_rows<E>(x: MatrixMut<'_, E>, range: Range<usize>) -> MatrixMut<'_, E> {
    x.split_rows(range.end).0.split_rows(range.start).1
}

/// A range of columns.
pub(super) fn some_cols<E>(x: MatrixMut<'_, E>, range: Range<usize>) -> MatrixMut<'_, E> {
    x.split_cols(range.end).0.split_cols(range.start).1
}

/// Sets all elements to one number.
pub(super) fn fill<E: Copy>(mut x: MatrixMut<'_, E>, value: E) {
    for row in 0..x.rows() {
        x.row_mut(row).fill(value);
    }
}
