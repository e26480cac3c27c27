//! The partition of an attention and of its results into parts for tasks.

use std::ops::Range;

use super::heads::{HeadLayout, Heads};
use super::paged::KeySource;
use super::plan::{Head, Tile, tiles};
use super::{Attention, Normalizer, Sizes};
use crate::kernel::{Matrix, Pooled, parallel};

/// The number of multiplications and additions below which a second thread does not pay: some tens of microseconds.
const SMALL: usize = 1 << 20;

impl Sizes {
    /// The number of query heads of a key head.
    pub(super) fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// Whether a second thread does not pay for so many pairs of queries and keys.
    pub(crate) fn is_small(&self, pairs: usize) -> bool {
        // The keys of one query come from memory, which takes longer than the products.
        let small = if self.query == 1 { SMALL / 4 } else { SMALL };
        pairs * (self.width + self.value_width) < small
    }

    /// The query heads of a key head.
    pub(super) fn heads_of(self, b: usize, kv: usize) -> impl Iterator<Item = Head> {
        let group = self.group();
        (kv * group..(kv + 1) * group).map(move |h| Head { b, h })
    }
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
    /// The tiles of a block of queries and a range of keys.
    pub(super) fn tiles(
        &self,
        head: Head,
        queries: Range<usize>,
        keys: Range<usize>,
    ) -> impl Iterator<Item = Tile> {
        tiles(self.mask, head, queries, keys, self.sizes.width)
    }

    /// `body(task)` for every task, on several threads if that pays. The tasks are the whole work of this many key heads.
    pub(super) fn for_each<T: Send>(
        &self,
        key_heads: usize,
        tasks: impl IntoIterator<Item = T>,
        body: impl Fn(T) + Send + Sync,
    ) {
        let sizes = self.sizes;
        let pairs = key_heads * sizes.group() * sizes.query * sizes.key;
        if sizes.is_small(pairs) {
            tasks.into_iter().for_each(body);
        } else {
            parallel::for_each(tasks, body);
        }
    }

    /// Panics if the arguments do not fit the sizes: `q`, `k`, `v`, the output, `lse` and the weights.
    #[track_caller]
    pub(super) fn check(
        &self,
        q: Heads<Matrix<'_, E>>,
        [k, v]: [KeySource<'_, E>; 2],
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
        let shapes = [
            (
                "queries",
                KeySource::from(q).shape(),
                [batch, heads, query, width],
            ),
            ("keys", k.shape(), [batch, kv_heads, key, width]),
            ("values", v.shape(), [batch, kv_heads, key, value_width]),
            ("output", out, [batch, heads, query, value_width]),
        ];
        for (name, (layout, found), sizes) in shapes {
            assert_eq!(found, layout.shape(sizes), "rows and columns of the {name}");
        }
        if let Normalizer::Sink(sink) = self.normalizer {
            assert_eq!(sink.len(), heads, "a sink for every head");
        }
        let mixed = [self.talking.scores, self.talking.weights];
        for matrix in mixed.into_iter().flatten() {
            let shape = (matrix.rows(), matrix.cols());
            assert_eq!(shape, (heads, heads), "rows and columns of heads that talk");
        }
        let rows = batch * heads * query;
        assert!(lse.is_none_or(|lse| lse == rows), "an lse for every query");
        assert!(
            weights.is_none_or(|weights| weights == rows * key),
            "a weight for every pair"
        );
    }
}
