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
use super::plan::{BLOCK, Head, TILE, Tile, chunks, tiles};
use super::scratch::Panel;
use super::weights::{Finish, Running, Weigh};
use super::{Attention, Prepare};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Into, run};

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
        let keys = Keys::load(self, k, v);
        let heads = self.sizes.query_heads();
        let outs = parts(out, self.sizes.batch, self.sizes.heads);
        let rows = shares(lse, self.sizes.batch * self.sizes.heads);
        let blocks = heads.zip(outs.into_iter().zip(rows));
        let blocks = blocks.flat_map(|(head, (out, lse))| self.blocks(head, out, lse));
        self.for_each(blocks.collect(), |block| self.forward_block(q, &keys, block));
    }

    fn blocks<'a>(
        &self,
        head: Head,
        out: MatrixMut<'a, E>,
        lse: &'a mut [E],
    ) -> impl Iterator<Item = Block<'a, E>> {
        let rows = out.row_chunks(BLOCK).into_iter().zip(lse.chunks_mut(BLOCK));
        let blocks = chunks(0..self.sizes.query, BLOCK).zip(rows);
        blocks.map(move |(queries, (out, lse))| Block {
            head,
            queries,
            out,
            lse,
        })
    }

    fn forward_block(&self, q: Matrix<'_, E>, keys: &Keys<E>, block: Block<'_, E>) {
        let Block { head, queries, mut out, lse } = block;
        let mut prepared = Panel::new(queries.len(), self.sizes.width);
        run(LoadRows {
            prepare: &self.query,
            x: self.sizes.of_query_head(q, head).some_rows(queries.clone()),
            first: queries.start,
            to: prepared.write(),
        });
        let keys = keys.of(self, head);
        let mut scores = Panel::new(queries.len(), TILE.min(self.sizes.key));
        let mut running = Running::new(self.normalizer);
        fill(out.reborrow(), E::ZERO);
        for tile in tiles(self.mask, head, queries, 0..self.sizes.key) {
            self.forward_tile(&tile, prepared.read(), keys, &mut scores, &mut running, &mut out);
        }
        run(Finish { normalizer: self.normalizer, running: &running, out, lse });
    }

    fn forward_tile(
        &self,
        tile: &Tile,
        q: Matrix<'_, E>,
        (kt, v): (Matrix<'_, E>, Matrix<'_, E>),
        scores: &mut Panel<E>,
        running: &mut Running<E>,
        out: &mut MatrixMut<'_, E>,
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
            out: out.reborrow(),
        });
        let weights = Coefficients {
            mask: self.mask,
            tile,
            matrix: scores.read(),
        };
        weights.times_keys(E::ONE, v.some_rows(tile.keys.clone()), out.reborrow(), Into::Add);
    }
}

/// All keys and values, as products want them.
struct Keys<E: Pooled> {
    /// The prepared keys, `[batch, kv_heads, width, key]`.
    kt: Buffer<E>,
    /// `[batch, kv_heads, key, value_width]`
    v: Buffer<E>,
}

impl<E: Pooled> Keys<E> {
    fn load(attention: &Attention<'_, E>, k: Matrix<'_, E>, v: Matrix<'_, E>) -> Self {
        let sizes = attention.sizes;
        let count = sizes.batch * sizes.kv_heads;
        let mut kt = Buffer::stale(k.rows() * k.cols());
        let mut vs = Buffer::stale(v.rows() * v.cols());
        let to = shares(&mut kt, count).into_iter().zip(shares(&mut vs, count));
        let tasks = sizes.key_heads().zip(to).flat_map(|((b, kv), (kt, vs))| {
            let kt = MatrixMut::new(kt, sizes.width, sizes.key).col_chunks(TILE);
            let vs = MatrixMut::new(vs, sizes.key, sizes.value_width).row_chunks(TILE);
            let (k, v) = (sizes.of_key_head(k, b, kv), sizes.of_key_head(v, b, kv));
            let to = kt.into_iter().zip(vs);
            chunks(0..sizes.key, TILE)
                .zip(to)
                .map(move |(keys, to)| (k.some_rows(keys.clone()), v.some_rows(keys.clone()), keys.start, to))
        });
        attention.for_each(tasks.collect(), |(k, v, first, (kt, vs))| {
            run(LoadColumns { prepare: &attention.key, x: k, first, to: kt });
            run(LoadRows { prepare: &Prepare::default(), x: v, first, to: vs });
        });
        Self { kt, v: vs }
    }

    /// The keys, transposed, and values that a query head reads.
    fn of(&self, attention: &Attention<'_, E>, head: Head) -> (Matrix<'_, E>, Matrix<'_, E>) {
        let sizes = attention.sizes;
        let at = head.b * sizes.kv_heads + head.kv;
        let (kt, v) = (sizes.width * sizes.key, sizes.key * sizes.value_width);
        (
            Matrix::new(&self.kt[at * kt..][..kt], sizes.width, sizes.key),
            Matrix::new(&self.v[at * v..][..v], sizes.key, sizes.value_width),
        )
    }
}
