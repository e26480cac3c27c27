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
    ///
    /// [`Normalizer::Softmax1`]: super::Normalizer::Softmax1
    /// [`Normalizer::Sigmoid`]: super::Normalizer::Sigmoid
    pub fn forward(
        &self,
        q: Matrix<'_, E>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
        out: MatrixMut<'_, E>,
        lse: &mut [E],
    ) {
        self.check([q, k, v], (out.rows(), out.cols()), lse.len());
        let batch = self.sizes.batch;
        let results = parts(out, batch, 1).into_iter().zip(shares(lse, batch));
        self.for_each(batch, results.enumerate().collect(), |(b, (out, lse))| {
            let [q, k, v] = [q, k, v].map(|x| self.sizes.sequence(x, b));
            let columns = Columns::load(self, k);
            let blocks = self.blocks(b, out, lse);
            self.for_each(1, blocks, |block| self.forward_block(q, &columns, v, block));
        });
    }

    fn blocks<'a>(&self, b: usize, out: MatrixMut<'a, E>, lse: &'a mut [E]) -> Vec<Block<'a, E>> {
        let Sizes { heads, query, .. } = self.sizes;
        let of_heads = parts(out, 1, heads).into_iter().zip(shares(lse, heads));
        let blocks = self
            .sizes
            .heads_of(b)
            .zip(of_heads)
            .flat_map(|(head, (out, lse))| {
                let results = out
                    .row_chunks(QUERIES)
                    .into_iter()
                    .zip(lse.chunks_mut(QUERIES));
                let blocks = chunks(0..query, QUERIES).zip(results);
                blocks.map(move |(queries, (out, lse))| Block {
                    head,
                    queries,
                    out,
                    lse,
                })
            });
        blocks.collect()
    }

    fn forward_block(
        &self,
        q: Matrix<'_, E>,
        columns: &Columns<E>,
        v: Matrix<'_, E>,
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
            x: self
                .sizes
                .of_query_head(q, head.h)
                .some_rows(queries.clone()),
            first: queries.start,
            to: prepared.write(),
        });
        let keys = (columns.of(head.kv), self.sizes.of_key_head(v, head.kv));
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
        let values = v.some_rows(tile.keys.clone());
        weights.times_keys(E::ONE, values, sums.write(), Into::Add);
    }
}

/// The keys of a sequence as products want them: prepared, and transposed.
struct Columns<E: Pooled> {
    sizes: Sizes,
    /// `[kv_heads, width, key]`
    memory: Buffer<E>,
}

impl<E: Pooled> Columns<E> {
    fn load(attention: &Attention<'_, E>, k: Matrix<'_, E>) -> Self {
        let sizes = attention.sizes;
        let mut memory = Buffer::stale(k.cols() * stride(sizes.key));
        let columns = MatrixMut::strided(&mut memory, k.cols(), sizes.key, stride(sizes.key));
        let tasks = chunks(0..sizes.key, STRIP).zip(columns.col_chunks(STRIP));
        attention.for_each(1, tasks.collect(), |(keys, to)| {
            for (kv, to) in parts(to, sizes.kv_heads, 1).into_iter().enumerate() {
                run(LoadColumns {
                    prepare: &attention.key,
                    x: sizes.of_key_head(k, kv).some_rows(keys.clone()),
                    first: keys.start,
                    to,
                });
            }
        });
        Self { sizes, memory }
    }

    /// `[width, key]`
    fn of(&self, kv: usize) -> Matrix<'_, E> {
        let Sizes { key, width, .. } = self.sizes;
        let len = width * stride(key);
        Matrix::strided(&self.memory[kv * len..][..len], width, key, stride(key), 1)
    }
}
