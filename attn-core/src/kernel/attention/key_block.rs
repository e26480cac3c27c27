//! The backward pass, for a block of keys.
//!
//! Only the output and `lse` were saved: the weights are recomputed, tile by tile. The gradients of the keys stay in the cache
//! while all queries are processed.
//!
//! ```text
//! pass 1    s = score(scale q kᵀ)      dp = dout vᵀ + dw                  two products; dw, if the weights are a result
//! pass 2    p = exp(s - lse)           ds = p (dp - δ) score'             with δ = Σ p dp = Σ dout * out + Σ p dw, for a softmax
//! pass 3    dv += pᵀ dout              dk += scale dsᵀ q                  three products
//!           dq += scale ds k
//! ```

use std::ops::Range;

use super::dropout_mask::DropoutMask;
use super::load::{AdditiveGradients, BackwardRows, LoadColumns, LoadRows};
use super::masked_weights::MaskedWeights;
use super::plan::{QUERIES, Tile, chunks};
use super::queries::{Block, BlockVectors, Queries, TaskQueryGradients};
use super::rounded::{Loaded, MaskedPairs, PairPanel, multiply_tile};
use super::sums::TaskSums;
use super::weights::Differentiate;
use super::{Attention, HeadTransform, ScoreSums, Similarity};
use crate::kernel::panel::Panel;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{Threads, WriteMode, call, product, run};

/// Keys and values of a head, and their gradients.
pub(super) struct KeyBlock<'a, E> {
    pub b: usize,
    pub kv: usize,
    pub range: Range<usize>,
    /// `[keys, width]`
    pub k: Matrix<'a, E>,
    /// `[keys, value_width]`
    pub v: Matrix<'a, E>,
    /// `[keys, width]`
    pub d_k: MatrixMut<'a, E>,
    /// `[keys, value_width]`
    pub d_v: MatrixMut<'a, E>,
}

/// The keys in the layouts of the products, and their gradients so far.
struct Keys<'a, E: Pooled> {
    /// The inputs, and the gradients of the values.
    given: KeyBlock<'a, E>,
    vectors: Vectors<E>,
    /// The gradient of the keys: in the layout of `rows`, or of `columns` if the similarity is additive.
    d: Panel<E>,
    /// The gradient of the values, `[keys, value_width]`.
    d_values: Panel<E>,
}

/// The transformed keys and values in the layouts of the products.
enum Vectors<E: Pooled> {
    Whole {
        /// `[keys, width]`
        rows: Panel<E>,
        /// `[width, keys]`
        columns: Panel<E>,
        /// The values, `[value_width, keys]`.
        value_columns: Panel<E>,
    },
    /// Rounded to bf16.
    Rounded {
        /// `[pairs of keys, width]`
        rows: PairPanel,
        /// `[pairs of the width, keys]`
        columns: PairPanel,
        /// The values, `[pairs of the value_width, keys]`.
        value_columns: PairPanel,
    },
}

impl<E: Pooled> Vectors<E> {
    /// Keys and values of a head, of which the first has the position `first`.
    fn load(
        key: &HeadTransform<'_, E>,
        value: &HeadTransform<'_, E>,
        [k, v]: [Matrix<'_, E>; 2],
        first: usize,
    ) -> Self {
        let mut rows = Panel::new(k.rows(), k.cols());
        run(LoadRows {
            transform: key,
            x: k,
            first,
            to: rows.write(),
        });
        let mut columns = Panel::new(k.cols(), k.rows());
        transpose(rows.read(), columns.write());
        let mut value_columns = Panel::new(v.cols(), v.rows());
        run(LoadColumns {
            transform: value,
            x: v,
            first,
            to: value_columns.write(),
        });
        Self::Whole {
            rows,
            columns,
            value_columns,
        }
    }
}

/// Buffers for the pairs of a tile, `[queries, keys]`.
struct Pairs<E: Pooled> {
    /// The similarities of queries and keys, from which the scores are computed.
    similarities: Panel<E>,
    /// The scores, then the weights.
    weights: Panel<E>,
    /// The gradient of the weights, then of the scores, then of the similarities.
    d: Panel<E>,
}

/// Why the vectors of queries and those of keys are both rounded, or neither are.
const ONE_DTYPE: &str = "an attention has one dtype";

impl<E: Pooled> Attention<'_, E> {
    pub(super) fn backward_block(
        &self,
        queries: &Queries<'_, E>,
        block: KeyBlock<'_, E>,
        d_q: &mut TaskQueryGradients<'_, E>,
        sums: &mut TaskSums<'_, E>,
    ) {
        let b = block.b;
        let kv = block.kv;
        let range = block.range.clone();
        let mut keys = Keys::load(self, block);
        let mut pairs = Pairs::new(range.len());
        for head in self.sizes.heads_of(b, kv) {
            for some in chunks(0..self.sizes.query, QUERIES) {
                let tiles = self.tiles(head, some.clone(), range.clone());
                let mut tiles = tiles.peekable();
                if tiles.peek().is_none() {
                    continue;
                }
                let queries = queries.block(self, head, some);
                for tile in tiles {
                    self.backward_tile(
                        &tile,
                        &queries,
                        &mut keys,
                        &mut pairs,
                        d_q.of_tile(&tile),
                        sums,
                    );
                }
            }
        }
        keys.finish(self, sums.key_gain);
    }

    fn backward_tile(
        &self,
        tile: &Tile,
        queries: &Block<'_, E>,
        keys: &mut Keys<'_, E>,
        pairs: &mut Pairs<E>,
        d_q: MatrixMut<'_, E>,
        sums: &mut TaskSums<'_, E>,
    ) {
        let first = keys.given.range.start;
        let columns = tile.keys.start - first..tile.keys.end - first;
        self.recompute_weights(
            tile,
            queries,
            keys,
            columns.clone(),
            pairs,
            sums.score(tile),
        );
        let d_values = keys.d_values.write().some_rows(columns.clone());
        match (&keys.vectors, &queries.vectors) {
            (
                Vectors::Whole {
                    rows, columns: kt, ..
                },
                BlockVectors::Whole { rows: q, d_out },
            ) => {
                let of = |matrix| MaskedWeights {
                    mask: self.mask,
                    tile,
                    matrix,
                };
                let (q, d_out) = (q.rows(), d_out.rows());
                let weights = of(pairs.weights.read());
                weights.add_transposed_matmul(E::ONE, d_out, d_values);
                match self.similarity {
                    Similarity::Dot { scale } => {
                        let d = of(pairs.d.read());
                        let d_k = keys.d.write().some_rows(columns.clone());
                        d.add_transposed_matmul(scale, q, d_k);
                        d.add_matmul(scale, rows.read().some_rows(columns), d_q);
                    }
                    Similarity::Additive { w } => run(AdditiveGradients {
                        q,
                        kt: kt.read().some_cols(columns.clone()),
                        w: w.row(tile.head.h),
                        d: pairs.d.read(),
                        d_q,
                        d_kt: keys.d.write().some_cols(columns),
                        d_w: sums.w(tile),
                    }),
                }
            }
            (Vectors::Rounded { rows, .. }, BlockVectors::Rounded { rows: q, d_out }) => {
                let mask = self.mask;
                let masked = MaskedPairs { mask, tile };
                let weights = PairPanel::of_rows(pairs.weights.read());
                masked.add_transposed_matmul(weights.read(), d_out.depths, d_values);
                let d = PairPanel::of_rows(pairs.d.read());
                let d_k = keys.d.write().some_rows(columns.clone());
                masked.add_transposed_matmul(d.read(), q.depths, d_k);
                let d = PairPanel::of_columns(pairs.d.read());
                let of_keys = columns.start / 2..columns.end.div_ceil(2);
                masked.add_matmul(d.read(), rows.read().some_rows(of_keys), d_q);
            }
            _ => unreachable!("{ONE_DTYPE}"),
        }
    }

    /// Passes 1 and 2: the weights are recomputed.
    fn recompute_weights(
        &self,
        tile: &Tile,
        queries: &Block<'_, E>,
        keys: &Keys<'_, E>,
        columns: Range<usize>,
        pairs: &mut Pairs<E>,
        sums: Option<ScoreSums<'_, E>>,
    ) {
        let rows = tile.queries.len();
        let cols = tile.keys.len();
        let mut scores = pairs.weights.reshape(rows, cols);
        let mut d = pairs.d.reshape(rows, cols);
        match (&keys.vectors, &queries.vectors) {
            (Vectors::Whole { columns: kt, .. }, BlockVectors::Whole { rows, .. }) => {
                let kt = kt.read().some_cols(columns.clone());
                self.similarities(tile, rows.rows(), kt, scores.reborrow());
            }
            (Vectors::Rounded { columns: kt, .. }, BlockVectors::Rounded { rows, .. }) => {
                multiply_tile(tile, scores.reborrow(), rows.rows, kt, columns.start);
            }
            _ => unreachable!("{ONE_DTYPE}"),
        }
        if self.score.is_some() {
            let mut similarities = pairs.similarities.reshape(rows, cols);
            for row in 0..rows {
                similarities.row_mut(row).copy_from_slice(scores.row(row));
            }
        }
        self.score(tile, &mut scores);
        match (&keys.vectors, &queries.vectors) {
            (Vectors::Whole { value_columns, .. }, BlockVectors::Whole { d_out, .. }) => {
                let d_out = d_out.rows();
                let vt = value_columns.read().some_cols(columns);
                tile.bands()
                    .for_each_part(d.reborrow(), |d, queries, keys| {
                        let (d_out, vt) = (d_out.some_rows(queries), vt.some_cols(keys));
                        product(d, WriteMode::Overwrite, E::ONE, d_out, vt, Threads::One);
                    });
            }
            (Vectors::Rounded { value_columns, .. }, BlockVectors::Rounded { d_out, .. }) => {
                multiply_tile(tile, d.reborrow(), d_out.rows, value_columns, columns.start);
            }
            _ => unreachable!("{ONE_DTYPE}"),
        }
        if let Some(d_weights) = queries.d_weights {
            for row in 0..rows {
                let d_weights = &d_weights.row(row)[tile.keys.clone()];
                call::axpy(E::ONE, d_weights, d.row_mut(row));
            }
        }
        run(Differentiate {
            normalizer: self.normalizer,
            dropper: self.dropout.map(DropoutMask::new),
            tile,
            lse: queries.lse,
            delta: queries.delta(),
            scores,
            d: d.reborrow(),
        });
        if let Some(score) = self.score {
            let similarities = pairs.similarities.read();
            score.backward(tile.origin(), similarities, &mut d, sums);
        }
    }
}

impl<'a, E: Pooled> Keys<'a, E> {
    fn load(attention: &Attention<'_, E>, given: KeyBlock<'a, E>) -> Self {
        let k = given.k;
        let v = given.v;
        let keys = given.range.len();
        let width = k.cols();
        let value_width = v.cols();
        let kv = given.kv;
        let first = given.range.start;
        let [key, value] = [(&attention.key, width), (&attention.value, value_width)]
            .map(|(transform, width)| transform.of_head(kv, width));
        let vectors = match attention.rounded_scale() {
            None => Vectors::load(&key, &value, [k, v], first),
            Some(_) => {
                let [k, v] = [(&key, k), (&value, v)].map(|(how, x)| Loaded::new(how, x, first));
                Vectors::Rounded {
                    rows: PairPanel::of_rows(k.rows()),
                    columns: PairPanel::of_transpose(k.rows()),
                    value_columns: PairPanel::of_transpose(v.rows()),
                }
            }
        };
        let mut d = match attention.similarity {
            Similarity::Dot { .. } => Panel::new(keys, width),
            Similarity::Additive { .. } => Panel::new(width, keys),
        };
        let mut d_values = Panel::new(keys, value_width);
        d.write().fill(E::ZERO);
        d_values.write().fill(E::ZERO);
        Self {
            given,
            vectors,
            d,
            d_values,
        }
    }

    /// Writes the gradients of the keys. Adds the gradient of the gain of the keys' norm to `d_gain`.
    fn finish(mut self, attention: &Attention<'_, E>, d_gain: &mut [E]) {
        if let Similarity::Additive { .. } = attention.similarity {
            let mut rows = Panel::new(self.given.range.len(), self.given.k.cols());
            transpose(self.d.read(), rows.write());
            self.d = rows;
        }
        run(BackwardRows {
            transform: &attention.key.of_head(self.given.kv, self.given.k.cols()),
            x: self.given.k,
            first: self.given.range.start,
            d: self.d.read(),
            to: self.given.d_k,
            d_gain,
        });
        self.given.d_v.copy_from(self.d_values.read());
    }
}

impl<E: Pooled> Pairs<E> {
    /// Buffers for tiles of up to this many keys.
    fn new(keys: usize) -> Self {
        Self {
            similarities: Panel::new(QUERIES, keys),
            weights: Panel::new(QUERIES, keys),
            d: Panel::new(QUERIES, keys),
        }
    }
}
