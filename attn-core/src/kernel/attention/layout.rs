//! The layout of heads in matrices, and the partition of results into parts for tasks.

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

    /// The rows of a sequence.
    pub(super) fn sequence<'a, E>(&self, x: Matrix<'a, E>, b: usize) -> Matrix<'a, E> {
        let rows = x.rows() / self.batch;
        x.some_rows(b * rows..(b + 1) * rows)
    }

    /// The queries of a head, from the rows of a sequence.
    pub(super) fn of_query_head<'a, E>(&self, x: Matrix<'a, E>, h: usize) -> Matrix<'a, E> {
        let width = x.cols() / self.heads;
        x.some_cols(h * width..(h + 1) * width)
    }

    /// The keys or values of a head, from the rows of a sequence.
    pub(super) fn of_key_head<'a, E>(&self, x: Matrix<'a, E>, kv: usize) -> Matrix<'a, E> {
        let width = x.cols() / self.kv_heads;
        x.some_cols(kv * width..(kv + 1) * width)
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

    /// Panics if the arguments do not fit the sizes: `q`, `k`, `v`, the shape of the output, and that of `lse`.
    #[track_caller]
    pub(super) fn check(&self, [q, k, v]: [Matrix<'_, E>; 3], out: (usize, usize), lse: usize) {
        let sizes = self.sizes;
        let heads = sizes.heads;
        let kv_heads = sizes.kv_heads;
        assert!(
            kv_heads * sizes.group() == heads,
            "{heads} heads of queries, {kv_heads} of keys"
        );
        assert!(
            self.value.norm.is_none() && self.value.rope.is_none(),
            "values are neither normalised nor rotated"
        );
        let queries = sizes.queries();
        let keys = sizes.keys();
        let shape = |x: Matrix<'_, E>| (x.rows(), x.cols());
        let shapes = [
            ("queries", shape(q), (queries, heads * sizes.width)),
            ("keys", shape(k), (keys, kv_heads * sizes.width)),
            ("values", shape(v), (keys, kv_heads * sizes.value_width)),
            ("output", out, (queries, heads * sizes.value_width)),
            ("lse", (lse, 1), (queries * heads, 1)),
        ];
        if let Normalizer::Sink(sink) = self.normalizer {
            assert_eq!(sink.len(), heads, "a sink for every head");
        }
        for (name, found, expected) in shapes {
            assert_eq!(found, expected, "rows and columns of the {name}");
        }
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
