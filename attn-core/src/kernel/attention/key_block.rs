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
use super::layout::{copy, fill, some_cols, some_rows};
use super::load::{AdditiveGradients, BackwardRows, LoadRows};
use super::plan::{Head, QUERIES, Tile, chunks, tiles};
use super::scratch::Panel;
use super::sums::{OfTile, Part};
use super::weights::Differentiate;
use super::{Attention, Similarity, Sizes};
use crate::kernel::transpose::transpose;
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
struct Keys<E: Pooled> {
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
    d_values: Panel<E>,
}

/// A block of queries.
struct Queries<'a, E> {
    /// `[queries, width]`
    rows: Matrix<'a, E>,
    /// `[queries, value_width]`
    d_out: Matrix<'a, E>,
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
    pub(super) fn backward_block(
        &self,
        saved: &Saved<'_, E>,
        block: KeyBlock<'_, E>,
        sums: &mut Part<'_, E>,
    ) {
        let KeyBlock {
            b,
            kv,
            keys,
            d_k,
            d_v,
        } = block;
        let k = self
            .sizes
            .of_key_head(saved.k, b, kv)
            .some_rows(keys.clone());
        let v = self
            .sizes
            .of_key_head(saved.v, b, kv)
            .some_rows(keys.clone());
        let mut keys = Keys::load(self, keys, k, v);
        let mut pairs = Pairs {
            similarities: Panel::new(QUERIES, k.rows()),
            weights: Panel::new(QUERIES, k.rows()),
            d: Panel::new(QUERIES, k.rows()),
        };
        let group = self.sizes.group();
        for h in kv * group..(kv + 1) * group {
            let head = Head { b, h, kv };
            for range in chunks(0..self.sizes.query, QUERIES) {
                let mut tiles =
                    tiles(self.mask, head, range.clone(), keys.range.clone()).peekable();
                if tiles.peek().is_some() {
                    let queries = Queries::new(self.sizes, saved, head, range);
                    tiles.for_each(|tile| {
                        self.backward_tile(&tile, &queries, &mut keys, &mut pairs, sums)
                    });
                }
            }
        }
        keys.finish(self, k, d_k, d_v, sums.key_gain);
    }

    fn backward_tile(
        &self,
        tile: &Tile,
        queries: &Queries<'_, E>,
        keys: &mut Keys<E>,
        pairs: &mut Pairs<E>,
        sums: &mut Part<'_, E>,
    ) {
        let columns = tile.keys.start - keys.range.start..tile.keys.end - keys.range.start;
        let mut sums = sums.of_tile(self.sizes, tile);
        self.weigh_again(tile, queries, keys, columns.clone(), pairs, &mut sums);
        let of = |pairs| Coefficients {
            mask: self.mask,
            tile,
            matrix: pairs,
        };
        let weights = of(pairs.weights.read());
        let d_values = some_rows(keys.d_values.write(), columns.clone());
        weights.times_queries(E::ONE, queries.d_out, d_values, Into::Add);
        match self.similarity {
            Similarity::Dot { scale } => {
                let (d, d_k) = (
                    of(pairs.d.read()),
                    some_rows(keys.d.write(), columns.clone()),
                );
                d.times_queries(scale, queries.rows, d_k, Into::Add);
                d.times_keys(
                    scale,
                    keys.rows.read().some_rows(columns),
                    sums.q,
                    Into::Add,
                );
            }
            Similarity::Additive { w } => run(AdditiveGradients {
                q: queries.rows,
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
        keys: &Keys<E>,
        columns: Range<usize>,
        pairs: &mut Pairs<E>,
        sums: &mut OfTile<'_, E>,
    ) {
        let (rows, cols) = (tile.queries.len(), tile.keys.len());
        let mut scores = pairs.weights.reshape(rows, cols);
        let mut d = pairs.d.reshape(rows, cols);
        let kt = keys.columns.read().some_cols(columns.clone());
        self.compare(tile.head, queries.rows, kt, scores.reborrow());
        if self.score.is_some() {
            let mut similarities = pairs.similarities.reshape(rows, cols);
            for row in 0..rows {
                similarities.row_mut(row).copy_from_slice(scores.row(row));
            }
        }
        self.score(tile, &mut scores);
        let vt = keys.value_columns.read().some_cols(columns);
        product(
            d.reborrow(),
            Into::Overwrite,
            E::ONE,
            queries.d_out,
            vt,
            Threads::One,
        );
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
            score.backward(
                self.bias(tile),
                similarities,
                &mut d,
                sums.bias.as_deref_mut(),
            );
        }
    }
}

impl<E: Pooled> Keys<E> {
    /// `k`, `v`: the rows of the range.
    fn load(
        attention: &Attention<'_, E>,
        range: Range<usize>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
    ) -> Self {
        let keys = range.len();
        let (width, value_width) = (k.cols(), v.cols());
        let mut loaded = Self {
            range,
            rows: Panel::new(keys, width),
            columns: Panel::new(width, keys),
            value_columns: Panel::new(value_width, keys),
            d: match attention.similarity {
                Similarity::Dot { .. } => Panel::new(keys, width),
                Similarity::Additive { .. } => Panel::new(width, keys),
            },
            d_values: Panel::new(keys, value_width),
        };
        run(LoadRows {
            prepare: &attention.key,
            x: k,
            first: loaded.range.start,
            to: loaded.rows.write(),
        });
        transpose(loaded.rows.read(), loaded.columns.write());
        transpose(v, loaded.value_columns.write());
        fill(loaded.d.write(), E::ZERO);
        fill(loaded.d_values.write(), E::ZERO);
        loaded
    }

    /// The gradients of the keys and of the values. What the gain of the keys' norm gets is added to `d_gain`.
    fn finish(
        mut self,
        attention: &Attention<'_, E>,
        k: Matrix<'_, E>,
        d_k: MatrixMut<'_, E>,
        d_v: MatrixMut<'_, E>,
        d_gain: &mut [E],
    ) {
        if let Similarity::Additive { .. } = attention.similarity {
            transpose(self.d.read(), self.rows.write());
            self.d = self.rows;
        }
        run(BackwardRows {
            prepare: &attention.key,
            x: k,
            first: self.range.start,
            d: self.d.read(),
            to: d_k,
            d_gain,
        });
        copy(self.d_values.read(), d_v);
    }
}

impl<'a, E: Pooled> Queries<'a, E> {
    fn new(sizes: Sizes, saved: &'a Saved<'_, E>, head: Head, range: Range<usize>) -> Self {
        let mut delta = [E::ZERO; QUERIES];
        let first = head.b * sizes.query + range.start;
        for (delta, row) in delta.iter_mut().zip(first..first + range.len()) {
            *delta = saved.delta.get(row, head.h);
        }
        let lse = &saved.lse[(head.b * sizes.heads + head.h) * sizes.query..];
        Self {
            rows: saved.q.of(head).some_rows(range.clone()),
            d_out: saved.d_out.of(head).some_rows(range.clone()),
            lse: &lse[range],
            delta,
        }
    }
}
