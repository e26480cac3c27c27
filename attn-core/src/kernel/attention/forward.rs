//! The forward pass.
//!
//! Keys are transposed once, because a product wants the columns of its right side to lie side by side. Then every block
//! of queries goes over its tiles by itself:
//!
//! ```text
//! pass 1    s = scale q kᵀ                        a product
//! pass 2    s = score(s), -∞ where masked         nothing, for most tiles
//! pass 3    p = exp(s - max)                      with the maximum and the sum so far
//! pass 4    out += p v                            a product
//! ```
//!
//! and divides by its sums in the end.

use std::ops::Range;

use super::absent::Coefficients;
use super::dropout::Dropper;
use super::layout::{fill, parts, shares};
use super::load::{LoadColumns, LoadRows};
use super::plan::{Head, QUERIES, TILE, Tile, chunks, tiles};
use super::scratch::Panel;
use super::weights::{Finish, Running, Weigh};
use super::{Attention, Similarity};
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Into, run};

/// A block of queries of a head, and what is computed of it.
struct Block<'a, E> {
    head: Head,
    queries: Range<usize>,
    /// `[queries, value_width]`
    out: MatrixMut<'a, E>,
    /// `[queries]`
    lse: &'a mut [E],
}

impl<E: Pooled> Attention<'_, E> {
    /// [`forward`](Self::forward), compiled where it is called.
    pub(super) fn forward_here(
        &self,
        q: Matrix<'_, E>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
        out: MatrixMut<'_, E>,
        lse: &mut [E],
    ) {
        self.check([q, k, v], (out.rows(), out.cols()), lse.len());
        let (sizes, kv_heads) = (self.sizes, self.sizes.kv_heads);
        let key_heads = sizes.batch * kv_heads;
        let outs = parts(out, sizes.batch, kv_heads).into_iter();
        let results = outs.zip(shares(lse, key_heads)).enumerate();
        self.for_each(key_heads, results.collect(), |(i, (out, lse))| {
            let (b, kv) = (i / kv_heads, i % kv_heads);
            let [q, k, v] = [q, k, v].map(|x| sizes.sequence(x, b));
            let [k, v] = [k, v].map(|x| sizes.of_key_head(x, kv));
            let keys = Keys::load(self, k);
            self.for_each(1, self.blocks(b, kv, out, lse), |block| {
                self.forward_block(q, (keys.columns(), v), block);
            });
        });
    }

    /// The blocks of the queries that read a key head, and their parts of the results.
    fn blocks<'a>(
        &self,
        b: usize,
        kv: usize,
        out: MatrixMut<'a, E>,
        lse: &'a mut [E],
    ) -> Vec<Block<'a, E>> {
        let group = self.sizes.group();
        let results = parts(out, 1, group).into_iter().zip(shares(lse, group));
        let mut blocks = Vec::new();
        for (head, (out, lse)) in self.sizes.heads_of(b, kv).zip(results) {
            let results = out
                .row_chunks(QUERIES)
                .into_iter()
                .zip(lse.chunks_mut(QUERIES));
            let queries = chunks(0..self.sizes.query, QUERIES);
            blocks.extend(queries.zip(results).map(|(queries, (out, lse))| Block {
                head,
                queries,
                out,
                lse,
            }));
        }
        blocks
    }

    fn forward_block(
        &self,
        q: Matrix<'_, E>,
        keys: (Matrix<'_, E>, Matrix<'_, E>),
        block: Block<'_, E>,
    ) {
        let (head, queries) = (block.head, block.queries);
        let of_head = self.sizes.of_query_head(q, head.h);
        let mut prepared = Panel::new(queries.len(), self.sizes.width);
        run(LoadRows {
            prepare: &self.query,
            x: of_head.some_rows(queries.clone()),
            first: queries.start,
            to: prepared.write(),
        });
        let mut scores = Panel::new(queries.len(), TILE.min(self.sizes.key));
        let mut running = Running::new(self.normalizer);
        let mut sums = Panel::new(queries.len(), self.sizes.value_width);
        fill(sums.write(), E::ZERO);
        for tile in tiles(self.mask, head, queries, 0..self.sizes.key) {
            self.forward_tile(
                &tile,
                prepared.read(),
                keys,
                &mut scores,
                &mut running,
                &mut sums,
            );
        }
        run(Finish {
            running: &running,
            sums: sums.read(),
            out: block.out,
            lse: block.lse,
        });
    }

    fn forward_tile(
        &self,
        tile: &Tile,
        q: Matrix<'_, E>,
        (kt, v): (Matrix<'_, E>, Matrix<'_, E>),
        scores: &mut Panel<E>,
        running: &mut Running<E>,
        sums: &mut Panel<E>,
    ) {
        let mut to = scores.reshape(q.rows(), tile.keys.len());
        self.compare(tile.head, q, kt.some_cols(tile.keys.clone()), to.reborrow());
        self.score(tile, &mut to);
        run(Weigh {
            normalizer: self.normalizer,
            dropper: self.dropout.map(Dropper::new),
            tile,
            scores: to,
            running,
            sums: sums.write(),
        });
        let weights = Coefficients {
            mask: self.mask,
            tile,
            matrix: scores.read(),
        };
        let values = v.some_rows(tile.keys.clone());
        weights.times_keys(E::ONE, values, sums.write(), Into::Add);
    }
}

/// The prepared keys of a head.
enum Keys<'a, E: Pooled> {
    /// `[key, width]`, not to be prepared.
    Given(Matrix<'a, E>),
    /// `[key, width]`
    Rows(Panel<E>),
    /// `[width, key]`
    Columns(Panel<E>),
}

impl<'a, E: Pooled> Keys<'a, E> {
    fn load(attention: &Attention<'_, E>, k: Matrix<'a, E>) -> Self {
        let prepare = &attention.key;
        // Decoding: the products of one query with rows are as fast as any.
        let dot = matches!(attention.similarity, Similarity::Dot { .. });
        if attention.sizes.query == 1 && dot {
            if prepare.is_nothing() {
                return Self::Given(k);
            }
            let mut rows = Panel::new(k.rows(), k.cols());
            run(LoadRows {
                prepare,
                x: k,
                first: 0,
                to: rows.write(),
            });
            return Self::Rows(rows);
        }
        let mut columns = Panel::new(k.cols(), k.rows());
        let tasks = chunks(0..k.rows(), TILE).zip(columns.write().col_chunks(TILE));
        attention.for_each(1, tasks.collect(), |(keys, to)| {
            let (x, first) = (k.some_rows(keys.clone()), keys.start);
            run(LoadColumns {
                prepare,
                x,
                first,
                to,
            });
        });
        Self::Columns(columns)
    }

    /// `[width, key]`
    fn columns(&self) -> Matrix<'_, E> {
        match self {
            Self::Given(rows) => rows.transposed(),
            Self::Rows(rows) => rows.read().transposed(),
            Self::Columns(columns) => columns.read(),
        }
    }
}
