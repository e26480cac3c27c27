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
use super::layout::{fill, parts, shares, some_cols, some_rows};
use super::load::{LoadColumns, LoadRows};
use super::plan::{QUERIES, Head, TILE, Tile, chunks, tiles};
use super::scratch::{Panel, stride};
use super::weights::{Finish, Running, Weigh};
use super::{Attention, Prepare, Sizes};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Into, run};

/// Keys whose heads are loaded one after the other.
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
        let keys = Keys::load(self, k, v);
        let heads = self.sizes.query_heads();
        let outs = parts(out, self.sizes.batch, self.sizes.heads);
        let rows = shares(lse, self.sizes.batch * self.sizes.heads);
        let blocks = heads.zip(outs.into_iter().zip(rows));
        let blocks = blocks.flat_map(|(head, (out, lse))| self.blocks(head, out, lse));
        self.for_each(blocks.collect(), |block| self.forward_block(q, v, &keys, block));
    }

    fn blocks<'a>(
        &self,
        head: Head,
        out: MatrixMut<'a, E>,
        lse: &'a mut [E],
    ) -> impl Iterator<Item = Block<'a, E>> {
        let rows = out.row_chunks(QUERIES).into_iter().zip(lse.chunks_mut(QUERIES));
        let blocks = chunks(0..self.sizes.query, QUERIES).zip(rows);
        blocks.map(move |(queries, (out, lse))| Block {
            head,
            queries,
            out,
            lse,
        })
    }

    fn forward_block(&self, q: Matrix<'_, E>, v: Matrix<'_, E>, keys: &Keys<E>, block: Block<'_, E>) {
        let Block { head, queries, out, lse } = block;
        let mut prepared = Panel::new(queries.len(), self.sizes.width);
        run(LoadRows {
            prepare: &self.query,
            x: self.sizes.of_query_head(q, head).some_rows(queries.clone()),
            first: queries.start,
            to: prepared.write(),
        });
        let keys = (keys.of(head).0, self.sizes.of_key_head(v, head.b, head.kv));
        let mut scores = Panel::new(queries.len(), TILE.min(self.sizes.key));
        let mut running = Running::new(self.normalizer);
        let mut sums = Panel::new(queries.len(), self.sizes.value_width);
        fill(sums.write(), E::ZERO);
        for tile in tiles(self.mask, head, queries, 0..self.sizes.key) {
            self.forward_tile(&tile, prepared.read(), keys, &mut scores, &mut running, &mut sums);
        }
        run(Finish { running: &running, sums: sums.read(), out, lse });
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
        weights.times_keys(E::ONE, v.some_rows(tile.keys.clone()), sums.write(), Into::Add);
    }
}

/// All keys and values, as products want them.
struct Keys<E: Pooled> {
    sizes: Sizes,
    /// The prepared keys, `[batch, kv_heads, width, key]`.
    columns: Buffer<E>,
    /// `[batch, kv_heads, key, value_width]`
    values: Buffer<E>,
}

/// Where some keys go: for every head, a part of its columns, `[width, keys]`, and of its values, `[keys, value_width]`.
type Loaded<'a, E> = Vec<(MatrixMut<'a, E>, MatrixMut<'a, E>)>;

impl<E: Pooled> Keys<E> {
    fn load(attention: &Attention<'_, E>, k: Matrix<'_, E>, v: Matrix<'_, E>) -> Self {
        let sizes = attention.sizes;
        let heads = sizes.batch * sizes.kv_heads;
        let mut keys = Self {
            sizes,
            columns: Buffer::stale(heads * sizes.width * stride(sizes.key)),
            values: Buffer::stale(heads * sizes.key * stride(sizes.value_width)),
        };
        attention.for_each(keys.parts(), |(b, range, mut to)| {
            // All heads of a few keys: they lie side by side in memory.
            for keys in chunks(range.clone(), STRIP) {
                let columns = keys.start - range.start..keys.end - range.start;
                for (kv, (kt, values)) in to.iter_mut().enumerate() {
                    let of_head = |x| sizes.of_key_head(x, b, kv).some_rows(keys.clone());
                    run(LoadColumns {
                        prepare: &attention.key,
                        x: of_head(k),
                        first: keys.start,
                        to: some_cols(kt.reborrow(), columns.clone()),
                    });

                }
            }
        });
        keys
    }

    /// The parts that are loaded at once, with the sequence and the range of keys that go there.
    fn parts(&mut self) -> Vec<(usize, Range<usize>, Loaded<'_, E>)> {
        let Sizes { batch, kv_heads, key, width, value_width, .. } = self.sizes;
        let mut parts: Vec<_> = (0..batch)
            .flat_map(|b| chunks(0..key, TILE).map(move |range| (b, range, Vec::new())))
            .collect();
        let columns = shares(&mut self.columns, batch * kv_heads);
        let values = shares(&mut self.values, batch * kv_heads);
        for (((b, _), columns), values) in self.sizes.key_heads().zip(columns).zip(values) {
            let columns = MatrixMut::strided(columns, width, key, stride(key)).col_chunks(TILE);
            let values = MatrixMut::strided(values, key, value_width, stride(value_width)).row_chunks(TILE);
            let of_sequence = parts.iter_mut().skip(b * key.div_ceil(TILE));
            for ((_, _, to), part) in of_sequence.zip(columns.into_iter().zip(values)) {
                to.push(part);
            }
        }
        parts
    }

    /// The keys, transposed, and the values that a query head reads.
    fn of(&self, head: Head) -> (Matrix<'_, E>, Matrix<'_, E>) {
        let Sizes { kv_heads, key, width, value_width, .. } = self.sizes;
        let at = head.b * kv_heads + head.kv;
        let (columns, values) = (width * stride(key), key * stride(value_width));
        (
            Matrix::strided(&self.columns[at * columns..][..columns], width, key, stride(key), 1),
            Matrix::strided(&self.values[at * values..][..values], key, value_width, stride(value_width), 1),
        )
    }
}
