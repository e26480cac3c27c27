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
use super::scratch::{Panel, stride};
use super::weights::{Finish, Running, Weigh};
use super::{Attention, Sizes};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Into, run};

/// Keys that are transposed by a task.
const STRIP: usize = 64;

/// What a task writes.
struct Block<'a, E> {
    head: Head,
    queries: Range<usize>,
    /// `[queries, value_width]`
    out: MatrixMut<'a, E>,
    /// `[queries]`
    lse: &'a mut [E],
}

impl<E: Pooled> Attention<'_, E> {
    /// The output, and for [`backward`](Self::backward) the logarithm `lse` of the sum of `exp(score)` over the keys that
    /// a query attends to; of one more than the sum for [`Normalizer::Softmax1`], and 0 for [`Normalizer::Sigmoid`].
    ///
    /// A query that attends to no key has the output 0 and an `lse` of -∞ (of 0 for [`Normalizer::Softmax1`]). A key that a
    /// query does not attend to has no influence on its output, not even on the last bit, and not even if it is NaN.
    ///
    /// `lse`: `[batch, heads, query]`.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    pub fn forward(
        &self,
        q: Matrix<'_, E>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
        out: MatrixMut<'_, E>,
        lse: &mut [E],
    ) {
        self.check([q, k, v], (out.rows(), out.cols()), lse.len());
        let columns = Columns::load(self, k);
        let heads = self.sizes.query_heads();
        let outs = parts(out, self.sizes.batch, self.sizes.heads);
        let rows = shares(lse, self.sizes.batch * self.sizes.heads);
        let blocks = heads.zip(outs.into_iter().zip(rows));
        let blocks = blocks.flat_map(|(head, (out, lse))| self.blocks(head, out, lse));
        self.for_each(blocks.collect(), |block| {
            self.forward_block(q, v, &columns, block)
        });
    }

    fn blocks<'a>(
        &self,
        head: Head,
        out: MatrixMut<'a, E>,
        lse: &'a mut [E],
    ) -> impl Iterator<Item = Block<'a, E>> {
        let rows = out
            .row_chunks(QUERIES)
            .into_iter()
            .zip(lse.chunks_mut(QUERIES));
        let blocks = chunks(0..self.sizes.query, QUERIES).zip(rows);
        blocks.map(move |(queries, (out, lse))| Block {
            head,
            queries,
            out,
            lse,
        })
    }

    fn forward_block(
        &self,
        q: Matrix<'_, E>,
        v: Matrix<'_, E>,
        columns: &Columns<E>,
        block: Block<'_, E>,
    ) {
        let Block {
            head,
            queries,
            out,
            lse,
        } = block;
        let mut prepared = Panel::new(queries.len(), self.sizes.width);
        run(LoadRows {
            prepare: &self.query,
            x: self.sizes.of_query_head(q, head).some_rows(queries.clone()),
            first: queries.start,
            to: prepared.write(),
        });
        let keys = (columns.of(head), self.sizes.of_key_head(v, head.b, head.kv));
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
            out,
            lse,
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
        weights.times_keys(
            E::ONE,
            v.some_rows(tile.keys.clone()),
            sums.write(),
            Into::Add,
        );
    }
}

/// All keys as the products want them: prepared, and transposed.
struct Columns<E: Pooled> {
    sizes: Sizes,
    /// `[batch, kv_heads, width, key]`
    memory: Buffer<E>,
}

impl<E: Pooled> Columns<E> {
    fn load(attention: &Attention<'_, E>, k: Matrix<'_, E>) -> Self {
        let sizes = attention.sizes;
        let rows = k.cols() * sizes.batch;
        let mut memory = Buffer::stale(rows * stride(sizes.key));
        let columns = MatrixMut::strided(&mut memory, rows, sizes.key, stride(sizes.key));
        let sequences = parts(columns, sizes.batch, 1).into_iter().enumerate();
        let tasks = sequences.flat_map(|(b, columns)| {
            let keys = chunks(0..sizes.key, STRIP);
            keys.zip(columns.col_chunks(STRIP))
                .map(move |(keys, to)| (b, keys, to))
        });
        // All heads of a few keys: they lie side by side in memory.
        attention.for_each(tasks.collect(), |(b, keys, to)| {
            for (kv, to) in parts(to, sizes.kv_heads, 1).into_iter().enumerate() {
                run(LoadColumns {
                    prepare: &attention.key,
                    x: sizes.of_key_head(k, b, kv).some_rows(keys.clone()),
                    first: keys.start,
                    to,
                });
            }
        });
        Self { sizes, memory }
    }

    /// `[width, key]`
    fn of(&self, head: Head) -> Matrix<'_, E> {
        let Sizes {
            kv_heads,
            key,
            width,
            ..
        } = self.sizes;
        let len = width * stride(key);
        let first = (head.b * kv_heads + head.kv) * len;
        Matrix::strided(&self.memory[first..][..len], width, key, stride(key), 1)
    }
}
