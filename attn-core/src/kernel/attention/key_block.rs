//! The backward pass, for a block of keys.
//!
//! Nothing but the output and `lse` was kept: the weights are computed again, a tile at a time. The gradients of the keys
//! stay where they are while all queries pass by.
//!
//! ```text
//! pass 1    s = score(scale q kᵀ)      dp = dout vᵀ                       two products
//! pass 2    p = exp(s - lse)           ds = p (dp - δ) score'             with δ = Σ dout * out
//! pass 3    dv += pᵀ dout              dk += scale dsᵀ q                  three products
//!           dq += scale ds k
//! ```

use std::ops::Range;

use super::absent::Coefficients;
use super::backward::Saved;
use super::dropout::Dropper;
use super::load::{AdditiveGradients, BackwardRows, LoadColumns, LoadRows};
use super::layout::{copy, fill, some_cols, some_rows};
use super::plan::{QUERIES, Head, Tile, chunks, tiles};
use super::scratch::Panel;
use super::sums::{OfTile, Part};
use super::weights::{Differentiate, RowDots};
use super::{Attention, Prepare, Similarity};
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Into, Threads, product, run};

/// Keys of a head, and where their gradients go.
pub(super) struct KeyBlock<'a, E> {
    pub b: usize,
    pub kv: usize,
    pub keys: Range<usize>,
    /// `[keys, width]`
    pub d_k: MatrixMut<'a, E>,
    /// `[keys, value_width]`
    pub d_v: MatrixMut<'a, E>,
}

/// The keys as products want them, and their gradients so far.
struct Keys<'a, E: Pooled> {
    range: Range<usize>,
    /// `[keys, width]`
    rows: Panel<E>,
    /// `[width, keys]`
    columns: Panel<E>,
    /// Of the values, `[value_width, keys]`.
    value_columns: Panel<E>,
    /// As `rows`, or as `columns` if the similarity is additive.
    d: Panel<E>,
    /// Of the values, `[keys, value_width]`.
    d_values: MatrixMut<'a, E>,
}

/// A block of queries.
struct Queries<'a, E: Pooled> {
    /// `[queries, width]`
    rows: Panel<E>,
    /// `[queries, value_width]`
    d_out: Panel<E>,
    /// `[queries]`
    lse: &'a [E],
    /// `[queries]`
    delta: [E; QUERIES],
}

/// Numbers for the pairs of a tile, `[queries, keys]`.
struct Pairs<E: Pooled> {
    /// What the scores are made of.
    similarities: Panel<E>,
    /// The scores, then the weights.
    weights: Panel<E>,
    /// The gradient of the weights, then of the scores, then of the similarities.
    d: Panel<E>,
}

impl<E: Pooled> Attention<'_, E> {
    pub(super) fn backward_block(&self, saved: &Saved<'_, E>, block: KeyBlock<'_, E>, sums: &mut Part<'_, E>) {
        let KeyBlock { b, kv, keys, d_k, d_v } = block;
        let k = self.sizes.of_key_head(saved.k, b, kv).some_rows(keys.clone());
        let v = self.sizes.of_key_head(saved.v, b, kv).some_rows(keys.clone());
        let mut keys = Keys::load(self, keys, k, v, d_v);
        let mut pairs = Pairs {
            similarities: Panel::new(QUERIES, k.rows()),
            weights: Panel::new(QUERIES, k.rows()),
            d: Panel::new(QUERIES, k.rows()),
        };
        let group = self.sizes.group();
        for h in kv * group..(kv + 1) * group {
            let head = Head { b, h, kv };
            for range in chunks(0..self.sizes.query, QUERIES) {
                let mut tiles = tiles(self.mask, head, range.clone(), keys.range.clone()).peekable();
                if tiles.peek().is_some() {
                    let queries = Queries::load(self, saved, head, range);
                    tiles.for_each(|tile| self.backward_tile(&tile, &queries, &mut keys, &mut pairs, sums));
                }
            }
        }
        keys.finish(self, k, d_k, sums.key_gain);
    }

    fn backward_tile(
        &self,
        tile: &Tile,
        queries: &Queries<'_, E>,
        keys: &mut Keys<'_, E>,
        pairs: &mut Pairs<E>,
        sums: &mut Part<'_, E>,
    ) {
        let columns = tile.keys.start - keys.range.start..tile.keys.end - keys.range.start;
        let mut sums = sums.of_tile(self.sizes, tile);
        self.weigh_again(tile, queries, keys, columns.clone(), pairs, &mut sums);
        let of = |pairs| Coefficients { mask: self.mask, tile, matrix: pairs };
        let weights = of(pairs.weights.read());
        let d_values = some_rows(keys.d_values.reborrow(), columns.clone());
        weights.times_queries(E::ONE, queries.d_out.read(), d_values, Into::Add);
        match self.similarity {
            Similarity::Dot { scale } => {
                let (d, d_k) = (of(pairs.d.read()), some_rows(keys.d.write(), columns.clone()));
                d.times_queries(scale, queries.rows.read(), d_k, Into::Add);
                d.times_keys(scale, keys.rows.read().some_rows(columns), sums.q, Into::Add);
            }
            Similarity::Additive { w } => run(AdditiveGradients {
                q: queries.rows.read(),
                kt: keys.columns.read().some_cols(columns.clone()),
                w: w.row(tile.head.h),
                d: pairs.d.read(),
                d_q: sums.q,
                d_kt: some_cols(keys.d.write(), columns),
                d_w: sums.w,
            }),
        }
    }

    /// Passes 1 and 2.
    fn weigh_again(
        &self,
        tile: &Tile,
        queries: &Queries<'_, E>,
        keys: &Keys<'_, E>,
        columns: Range<usize>,
        pairs: &mut Pairs<E>,
        sums: &mut OfTile<'_, E>,
    ) {
        let (rows, cols) = (tile.queries.len(), tile.keys.len());
        let mut scores = pairs.weights.reshape(rows, cols);
        let mut d = pairs.d.reshape(rows, cols);
        let kt = keys.columns.read().some_cols(columns.clone());
        self.compare(tile.head, queries.rows.read(), kt, scores.reborrow());
        if self.score.is_some() {
            copy(&scores, pairs.similarities.reshape(rows, cols));
        }
        self.score(tile, &mut scores);
        let vt = keys.value_columns.read().some_cols(columns);
        product(d.reborrow(), Into::Overwrite, E::ONE, queries.d_out.read(), vt, Threads::One);
        run(Differentiate {
            normalizer: self.normalizer,
            dropper: self.dropout.map(Dropper::new),
            tile,
            lse: queries.lse,
            delta: &queries.delta[..rows],
            scores,
            d: d.reborrow(),
        });
        if let Some(score) = self.score {
            let similarities = pairs.similarities.read();
            score.backward(self.bias(tile), similarities, &mut d, sums.bias.as_deref_mut());
        }
    }
}

impl<'a, E: Pooled> Keys<'a, E> {
    /// `k`, `v`, `d_values`: the rows of the range.
    fn load(
        attention: &Attention<'_, E>,
        range: Range<usize>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
        mut d_values: MatrixMut<'a, E>,
    ) -> Self {
        let (first, keys, width) = (range.start, k.rows(), k.cols());
        let (mut rows, mut columns) = (Panel::new(keys, width), Panel::new(width, keys));
        let mut value_columns = Panel::new(v.cols(), keys);
        let prepare = &attention.key;
        run(LoadRows { prepare, x: k, first, to: rows.write() });
        run(LoadColumns { prepare, x: k, first, to: columns.write() });
        let prepare = &Prepare::default();
        run(LoadColumns { prepare, x: v, first, to: value_columns.write() });
        let mut d = match attention.similarity {
            Similarity::Dot { .. } => Panel::new(keys, width),
            Similarity::Additive { .. } => Panel::new(width, keys),
        };
        fill(d.write(), E::ZERO);
        fill(d_values.reborrow(), E::ZERO);
        Self {
            range,
            rows,
            columns,
            value_columns,
            d,
            d_values,
        }
    }

    /// From the gradient of the prepared keys to that of the keys, `to`. What the gain gets is added to `d_gain`.
    fn finish(
        self,
        attention: &Attention<'_, E>,
        k: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
        d_gain: &mut [E],
    ) {
        let mut d = self.d;
        if let Similarity::Additive { .. } = attention.similarity {
            let mut rows = self.rows;
            run(LoadColumns {
                prepare: &Prepare::default(),
                x: d.read(),
                first: 0,
                to: rows.write(),
            });
            d = rows;
        }
        run(BackwardRows {
            prepare: &attention.key,
            x: k,
            first: self.range.start,
            d: d.read(),
            to,
            d_gain,
        });
    }
}

impl<'a, E: Pooled> Queries<'a, E> {
    fn load(
        attention: &Attention<'_, E>,
        saved: &Saved<'a, E>,
        head: Head,
        range: Range<usize>,
    ) -> Self {
        let sizes = attention.sizes;
        let some_rows = |x| sizes.of_query_head(x, head).some_rows(range.clone());
        let (q, d_out) = (some_rows(saved.q), some_rows(saved.d_out));
        let mut delta = [E::ZERO; QUERIES];
        run(RowDots {
            a: some_rows(saved.out),
            b: d_out,
            to: &mut delta[..range.len()],
        });
        let mut queries = Self {
            rows: Panel::new(range.len(), sizes.width),
            d_out: Panel::new(range.len(), sizes.value_width),
            lse: &saved.lse[(head.b * sizes.heads + head.h) * sizes.query..][range.clone()],
            delta,
        };
        run(LoadRows {
            prepare: &attention.query,
            x: q,
            first: range.start,
            to: queries.rows.write(),
        });
        run(LoadRows {
            prepare: &Prepare::default(),
            x: d_out,
            first: 0,
            to: queries.d_out.write(),
        });
        queries
    }
}
