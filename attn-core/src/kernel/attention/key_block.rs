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
use super::key_panels::TileGradients;
use super::load::BackwardRows;
use super::plan::{QUERIES, Tile, chunks};
use super::queries::{Queries, QueryBlock, TaskQueryGradients};
use super::sums::TaskSums;
use super::tile_operands::{KeyVectors, TileOperands};
use super::weights::Differentiate;
use super::{Attention, ScoreSums, Similarity};
use crate::kernel::panel::Panel;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{call, run, transpose};

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

/// A block of keys in the layouts of the products, and its gradients so far.
struct LoadedKeys<'a, E: Pooled> {
    /// The inputs, and where their gradients go.
    given: KeyBlock<'a, E>,
    vectors: KeyVectors<E>,
    /// The gradient of the keys: `[keys, width]`, or `[width, keys]` if the similarity is additive.
    d: Panel<E>,
    /// The gradient of the values, `[keys, value_width]`.
    d_values: Panel<E>,
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
        let mut keys = LoadedKeys::load(self, block);
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
        queries: &QueryBlock<'_, E>,
        keys: &mut LoadedKeys<'_, E>,
        pairs: &mut Pairs<E>,
        d_q: MatrixMut<'_, E>,
        sums: &mut TaskSums<'_, E>,
    ) {
        let first = keys.given.range.start;
        let range = tile.keys.start - first..tile.keys.end - first;
        let operands = TileOperands::new(&keys.vectors, &queries.vectors);
        let of_score = sums.score(tile);
        self.recompute_weights(tile, queries, &operands, range.clone(), pairs, of_score);
        let to = TileGradients {
            q: d_q,
            k: keys.d.write(),
            v: keys.d_values.write(),
            w: sums.w(tile),
        };
        let pairs = [pairs.weights.read(), pairs.d.read()];
        operands.add_gradients(self, tile, range, pairs, to);
    }

    /// Passes 1 and 2: the weights are recomputed.
    fn recompute_weights(
        &self,
        tile: &Tile,
        queries: &QueryBlock<'_, E>,
        operands: &TileOperands<'_, E>,
        range: Range<usize>,
        pairs: &mut Pairs<E>,
        sums: Option<ScoreSums<'_, E>>,
    ) {
        let rows = tile.queries.len();
        let cols = tile.keys.len();
        let mut scores = pairs.weights.reshape(rows, cols);
        let mut d = pairs.d.reshape(rows, cols);
        operands.similarities(self, tile, range.clone(), scores.reborrow());
        if self.score.is_some() {
            let mut similarities = pairs.similarities.reshape(rows, cols);
            for row in 0..rows {
                similarities.row_mut(row).copy_from_slice(scores.row(row));
            }
        }
        self.score(tile, &mut scores);
        operands.weight_gradients(tile, range, d.reborrow());
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

impl<'a, E: Pooled> LoadedKeys<'a, E> {
    fn load(attention: &Attention<'_, E>, given: KeyBlock<'a, E>) -> Self {
        let keys = given.range.len();
        let [width, value_width] = [given.k.cols(), given.v.cols()];
        let vectors = [given.k, given.v];
        let vectors = KeyVectors::load(attention, given.kv, vectors, given.range.start);
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
