//! The forward pass.
//!
//! Keys are transposed once, because a product is fast if the columns of its right side are contiguous. Then every block of
//! queries processes its tiles independently:
//!
//! ```text
//! pass 1    s = scale q kᵀ                        a product
//! pass 2    s = score(s), -∞ where masked         nothing, for most tiles
//! pass 3    p = exp(s - max)                      with the maximum and the sum so far
//! pass 4    out += p v                            a product
//! ```
//!
//! and divides by its sums in the end. A sparse normalizer needs all scores of a row before it knows a weight. So the scores of a
//! block of queries are stored, and passes 3 and 4 follow after pass 2 of the last tile. Where heads talk to each other, see `talking.rs`.

use std::ops::Range;

use smallvec::SmallVec;

use super::dropout_mask::DropoutMask;
use super::heads::Heads;
use super::load::{LoadColumns, LoadRows};
use super::masked_weights::MaskedWeights;
use super::paged::{KeySource, Rows};
use super::plan::{Head, QUERIES, TILE, Tile, chunks};
use super::rounded::{
    MaskedPairs, PairPanel, RoundedKeys, multiply_tile, round_queries, rounded_rows, scale_rows,
};
use super::softmax_state::OnlineSoftmaxState;
use super::sparse::{Slopes, Sparse, Sparsify};
use super::weight_rows::{MaskedDots, WeightRows};
use super::weights::{ApplyDropout, Divide, OnlineSoftmax, WriteLse};
use super::{Attention, OutputGradients, Outputs, Similarity};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Pair, run};

/// Beyond this number of values, those of all heads side by side are on more pages than the TLB holds.
const FAR: usize = 2048;

/// The operands of the products of a block of queries, after their transforms.
#[derive(Clone, Copy)]
enum Operands<'a, E> {
    Whole {
        /// `[queries, width]`
        q: Matrix<'a, E>,
        /// `[key, width]`
        k: Rows<'a, E>,
        /// `[key, value_width]`
        v: Rows<'a, E>,
        /// Whether `q` is one query that is rounded to bf16 behind the scale, for keys and values in bf16. So are the weights then.
        is_rounded: bool,
    },
    /// Rounded to bf16.
    Rounded {
        /// `[queries, pairs of the width]`
        q: Matrix<'a, Pair>,
        keys: &'a RoundedKeys,
    },
}

/// A block of queries of a head, and its results.
struct Block<'a, E> {
    head: Head,
    queries: Range<usize>,
    results: Results<'a, E>,
}

/// The results of the query heads of a key head. A few are on the stack: a token of a session allocates nothing.
type OfGroup<'a, E> = SmallVec<[Results<'a, E>; 8]>;

/// The results of some queries of a head.
pub(super) struct Results<'a, E> {
    /// `[queries, value_width]`
    pub out: MatrixMut<'a, E>,
    /// `[queries]`
    pub lse: &'a mut [E],
    /// `[queries, key]`
    pub weights: Option<MatrixMut<'a, E>>,
}

impl<'a, E> Results<'a, E> {
    /// Parts of this many queries each; the last may have fewer.
    pub(super) fn row_chunks(self, rows: usize) -> impl Iterator<Item = Self> {
        let mut weights = self.weights.map(|weights| weights.row_chunks(rows));
        let results = self.out.row_chunks(rows).zip(self.lse.chunks_mut(rows));
        results.map(move |(out, lse)| Self {
            out,
            lse,
            weights: weights.as_mut().and_then(Iterator::next),
        })
    }
}

impl<E: Pooled> Attention<'_, E> {
    /// [`forward`](Self::forward), compiled at the call.
    pub(super) fn forward_impl(
        &self,
        q: Heads<Matrix<'_, E>>,
        k: KeySource<'_, E>,
        v: KeySource<'_, E>,
        to: Outputs<'_, E>,
        lse: &mut [E],
    ) {
        let out = &to.out.matrix;
        let out = (to.out.layout, (out.rows(), out.cols()));
        let weights = to.weights.as_ref().map(|weights| weights.len());
        self.check(q, [k, v], out, Some(lse.len()), weights);
        if self.talking.is_any() {
            return self.forward_talking(q, [k, v], to, lse);
        }
        self.for_each_block(q, [k, v], to, lse, |operands, block| {
            match self.normalizer.sparse() {
                None => self.forward_block(operands, block),
                Some(sparse) => self.sparse_block(sparse, operands, block),
            }
        });
    }

    /// The inputs of `δ` of a sparse normalizer, under the thresholds that [`forward`](Self::forward) wrote: the means of the values,
    /// weighted by the slopes of the weights, which stand as `out`; and what the gradients of weights and thresholds, if there are any, add to
    /// `δ`, `[batch, heads, query]`.
    ///
    /// The first result is as large as the output, so it is no scratch memory but counts as activations. So does the other.
    pub(super) fn centres(
        &self,
        sparse: Sparse,
        [q, k, v]: [Heads<Matrix<'_, E>>; 3],
        tau: &[E],
        out: Heads<Matrix<'_, E>>,
        d: &OutputGradients<'_, E>,
    ) -> (Buffer<E>, Option<Buffer<E>>) {
        let [rows, cols] = [out.matrix.rows(), out.matrix.cols()];
        let mut centres = Buffer::counted(rows * cols);
        let mut shares = Buffer::counted(tau.len());
        // The blocks get the thresholds as `lse`, and read them there.
        shares.copy_from_slice(tau);
        let to = Heads {
            matrix: MatrixMut::new(&mut centres, rows, cols),
            layout: out.layout,
        };
        let keys = [k, v].map(KeySource::from);
        self.for_each_block(q, keys, to.into(), &mut shares, |operands, block| {
            self.centre_block(sparse, operands, block, d);
        });
        let has_shares = d.weights.is_some() || d.lse.is_some();
        (centres, has_shares.then_some(shares))
    }

    /// `body(operands, block)` for every block of queries.
    fn for_each_block(
        &self,
        q: Heads<Matrix<'_, E>>,
        [k, v]: [KeySource<'_, E>; 2],
        to: Outputs<'_, E>,
        lse: &mut [E],
        body: impl Fn(Operands<'_, E>, Block<'_, E>) + Send + Sync,
    ) {
        let sizes = self.sizes;
        let group = sizes.group();
        let kv_heads = sizes.kv_heads;
        let key_heads = sizes.batch * kv_heads;
        let mut results = self.results(to, lse);
        let results = (0..key_heads).map(|i| (i, results.by_ref().take(group).collect()));
        self.for_each(
            key_heads,
            results,
            |(i, results): (usize, OfGroup<'_, E>)| {
                let b = i / kv_heads;
                let kv = i % kv_heads;
                let [k, v] = [k, v].map(|x| x.of([sizes.batch, kv_heads], b, kv));
                let of_sequence = self.of_sequence(b);
                let load_queries = |block: &Block<'_, E>| {
                    let q = q.of([sizes.batch, sizes.heads], b, block.head.h);
                    of_sequence.load_queries(q, block)
                };
                let blocks = self.blocks(b, kv, results);
                of_sequence.for_each_block_of_keys(kv, [k, v], blocks, load_queries, &body);
            },
        );
    }

    /// [`for_each_block`](Self::for_each_block) of those that read key head `kv` of this sequence.
    fn for_each_block_of_keys<'a>(
        &self,
        kv: usize,
        [k, v]: [Rows<'_, E>; 2],
        blocks: impl Iterator<Item = Block<'a, E>>,
        load_queries: impl Fn(&Block<'_, E>) -> Panel<E> + Send + Sync,
        body: impl Fn(Operands<'_, E>, Block<'_, E>) + Send + Sync,
    ) where
        E: 'a,
    {
        let rounded_scale = self.rounded_scale();
        // One query reads them where they stand.
        let is_one = self.sizes.query == 1 && k.are_rounded() && v.are_rounded();
        if let (Some(scale), false) = (rounded_scale, is_one) {
            let keys = &RoundedKeys::load(self, kv, k, v);
            return self.for_each(1, blocks, |block| {
                let queries = round_queries(scale, load_queries(&block));
                let q = queries.read();
                body(Operands::Rounded { q, keys }, block);
            });
        }
        let keys = Keys::load(self, kv, k);
        let values = Values::load(self, kv, v);
        self.for_each(1, blocks, |block| {
            let mut queries = load_queries(&block);
            if let Some(scale) = rounded_scale {
                scale_rows(scale, queries.write());
                queries = rounded_rows(queries.read());
            }
            let operands = Operands::Whole {
                q: queries.read(),
                k: keys.rows(),
                v: values.rows(),
                is_rounded: rounded_scale.is_some(),
            };
            body(operands, block);
        });
    }

    /// The parts of the results, for every head of every sequence.
    pub(super) fn results<'a>(
        &self,
        Outputs { out, weights }: Outputs<'a, E>,
        lse: &'a mut [E],
    ) -> impl Iterator<Item = Results<'a, E>> {
        let sizes = self.sizes;
        let count = sizes.batch * sizes.heads;
        let mut weights = weights.map(|weights| equal_chunks(weights, count));
        let results = out.split([sizes.batch, sizes.heads]);
        results
            .zip(equal_chunks(lse, count))
            .map(move |(out, lse)| Results {
                out,
                lse,
                weights: weights
                    .as_mut()
                    .and_then(Iterator::next)
                    .map(|weights| MatrixMut::new(weights, sizes.query, sizes.key)),
            })
    }

    /// The blocks of queries that read a key head, with their parts of the results.
    fn blocks<'a>(
        &self,
        b: usize,
        kv: usize,
        results: OfGroup<'a, E>,
    ) -> impl Iterator<Item = Block<'a, E>> {
        let query = self.sizes.query;
        let heads = self.sizes.heads_of(b, kv).zip(results);
        heads.flat_map(move |(head, results)| {
            let blocks = chunks(0..query, QUERIES).zip(results.row_chunks(QUERIES));
            blocks.map(move |(queries, results)| Block {
                head,
                queries,
                results,
            })
        })
    }

    /// The transformed queries of a block, `[queries, width]`.
    fn load_queries(&self, of_head: Matrix<'_, E>, block: &Block<'_, E>) -> Panel<E> {
        let mut transformed = Panel::new(block.queries.len(), self.sizes.width);
        run(LoadRows {
            transform: &self.query.of_head(block.head.h, self.sizes.width),
            x: of_head.some_rows(block.queries.clone()),
            first: block.queries.start,
            to: transformed.write(),
        });
        transformed
    }

    fn forward_block(&self, operands: Operands<'_, E>, mut block: Block<'_, E>) {
        let rows = block.queries.len();
        let mut weights = block.results.weights.take().map(WeightRows::new);
        let mut scores = Panel::new(rows, TILE.min(self.sizes.key));
        let mut running = OnlineSoftmaxState::new(self.normalizer, block.head.h);
        let mut sums = self.no_sums(&block);
        for tile in self.tiles_of_block(&block) {
            let mut to = scores.reshape(rows, tile.keys.len());
            self.forward_scores(&tile, operands, &mut to);
            run(OnlineSoftmax {
                normalizer: self.normalizer,
                scores: to,
                running: &mut running,
                sums: sums.write(),
            });
            self.add_values(&tile, &mut scores, 0, operands, &mut sums);
            if let Some(weights) = &mut weights {
                weights.write(tile.keys, scores.read(), &running);
            }
        }
        if let Some(weights) = weights {
            weights.finish(&running);
        }
        finish(&running, &sums, block);
    }

    fn sparse_block(&self, normalizer: Sparse, operands: Operands<'_, E>, mut block: Block<'_, E>) {
        let rows = block.queries.len();
        let mut weights = block.results.weights.take().map(WeightRows::new);
        let tiles: Vec<Tile> = self.tiles_of_block(&block).collect();
        let visited = tiles.iter().map(|tile| tile.keys.len()).sum();
        let mut scores = Panel::new(rows, visited);
        let mut rest = scores.write();
        for tile in &tiles {
            let (mut to, others) = rest.split_cols(tile.keys.len());
            self.forward_scores(tile, operands, &mut to);
            rest = others;
        }
        let mut running = OnlineSoftmaxState::new(self.normalizer, block.head.h);
        run(Sparsify {
            normalizer,
            scores: scores.write(),
            running: &mut running,
        });
        let mut sums = self.no_sums(&block);
        let mut first = 0;
        for tile in &tiles {
            self.add_values(tile, &mut scores, first, operands, &mut sums);
            let columns = first..first + tile.keys.len();
            first = columns.end;
            if let Some(weights) = &mut weights {
                let of_tile = scores.read().some_cols(columns);
                weights.write(tile.keys.clone(), of_tile, &running);
            }
        }
        if let Some(weights) = weights {
            weights.finish(&running);
        }
        finish(&running, &sums, block);
    }

    fn centre_block(
        &self,
        normalizer: Sparse,
        operands: Operands<'_, E>,
        block: Block<'_, E>,
        d: &OutputGradients<'_, E>,
    ) {
        let rows = block.queries.len();
        let mut scores = Panel::new(rows, TILE.min(self.sizes.key));
        let mut running = OnlineSoftmaxState::new(self.normalizer, block.head.h);
        let mut sums = self.no_sums(&block);
        let d_weights = d
            .weights
            .map(|of| self.pairs(of.d, block.head, &block.queries));
        let d_tau = d.lse.map(|d| self.rows(d, block.head, &block.queries));
        let mut shares = [E::ZERO; QUERIES];
        for tile in self.tiles_of_block(&block) {
            let mut to = scores.reshape(rows, tile.keys.len());
            self.forward_scores(&tile, operands, &mut to);
            run(Slopes {
                normalizer,
                tau: block.results.lse,
                scores: to,
                running: &mut running,
            });
            self.add_values(&tile, &mut scores, 0, operands, &mut sums);
            if let Some(d) = d_weights {
                run(MaskedDots {
                    factors: scores.read(),
                    d: d.some_cols(tile.keys),
                    to: &mut shares,
                });
            }
        }
        run(Divide {
            running: &running,
            sums: sums.read(),
            out: block.results.out,
        });
        for (row, share) in block.results.lse.iter_mut().enumerate() {
            let d_tau = d_tau.map_or(E::ZERO, |d| d[row] * normalizer.scale());
            let sum = running.sum[row];
            *share = match sum == E::ZERO {
                true => E::ZERO,
                false => (shares[row] - d_tau) / sum,
            };
        }
    }

    fn tiles_of_block(&self, block: &Block<'_, E>) -> impl Iterator<Item = Tile> {
        self.tiles(block.head, block.queries.clone(), 0..self.sizes.key)
    }

    /// Zeros, `[queries, value_width]`.
    fn no_sums(&self, block: &Block<'_, E>) -> Panel<E> {
        let mut sums = Panel::new(block.queries.len(), self.sizes.value_width);
        sums.write().fill(E::ZERO);
        sums
    }

    /// Passes 1 and 2.
    fn forward_scores(&self, tile: &Tile, operands: Operands<'_, E>, to: &mut MatrixMut<'_, E>) {
        match operands {
            Operands::Whole {
                q, k, is_rounded, ..
            } => {
                let keys = tile.keys.clone();
                match self.similarity {
                    Similarity::Dot { scale } if self.sizes.query == 1 => {
                        let scale = if is_rounded { E::ONE } else { scale };
                        k.dots(scale, q.row(0), keys, to.row_mut(0));
                    }
                    _ => k.with(keys, |k| {
                        self.similarities(tile, q, k.transposed(), to.reborrow());
                    }),
                }
            }
            Operands::Rounded { q, keys } => {
                multiply_tile(tile, to.reborrow(), q, keys.columns(), tile.keys.start);
            }
        }
        self.score(tile, to);
    }

    /// Pass 4, after dropout. The weights of the tile begin at the column `first`.
    fn add_values(
        &self,
        tile: &Tile,
        weights: &mut Panel<E>,
        first: usize,
        operands: Operands<'_, E>,
        sums: &mut Panel<E>,
    ) {
        let columns = first..first + tile.keys.len();
        if let Some(dropout) = self.dropout {
            run(ApplyDropout {
                dropper: DropoutMask::new(dropout),
                tile,
                weights: weights.write().some_cols(columns.clone()),
            });
        }
        let (mask, matrix) = (self.mask, weights.read().some_cols(columns));
        match operands {
            Operands::Whole { v, is_rounded, .. } => {
                let rounded = is_rounded.then(|| rounded_rows(matrix));
                let matrix = rounded.as_ref().map_or(matrix, Panel::read);
                // Where a key is masked, its values may be NaN.
                if self.sizes.query == 1 && !tile.is_partial() {
                    v.add_weighted(matrix.row(0), tile.keys.clone(), sums.write().row_mut(0));
                } else {
                    v.with(tile.keys.clone(), |values| {
                        let weights = MaskedWeights { mask, tile, matrix };
                        weights.add_matmul(E::ONE, values, sums.write());
                    });
                }
            }
            Operands::Rounded { keys, .. } => {
                let weights = PairPanel::of_columns(matrix);
                let pairs = tile.keys.start / 2..tile.keys.end.div_ceil(2);
                let values = keys.values().some_rows(pairs);
                MaskedPairs { mask, tile }.add_matmul(weights.read(), values, sums.write());
            }
        }
    }
}

fn finish<E: Pooled>(running: &OnlineSoftmaxState<E>, sums: &Panel<E>, block: Block<'_, E>) {
    run(Divide {
        running,
        sums: sums.read(),
        out: block.results.out,
    });
    run(WriteLse {
        running,
        lse: block.results.lse,
    });
}

/// The transformed keys of a head.
pub(super) enum Keys<'a, E: Pooled> {
    /// `[key, width]`, without a transform.
    Borrowed(Rows<'a, E>),
    /// `[key, width]`
    Rows(Panel<E>),
    /// `[width, key]`
    Columns(Panel<E>),
}

impl<'a, E: Pooled> Keys<'a, E> {
    pub(super) fn load(attention: &Attention<'_, E>, kv: usize, k: Rows<'a, E>) -> Self {
        let transform = &attention.key.of_head(kv, k.cols());
        // In a decode step, the products of one query with rows are as fast as any.
        let dot = matches!(attention.similarity, Similarity::Dot { .. });
        if attention.sizes.query == 1 && dot {
            if transform.is_nothing() {
                return Self::Borrowed(k);
            }
            let mut rows = Panel::new(k.rows(), k.cols());
            k.with(0..k.rows(), |x| {
                run(LoadRows {
                    transform,
                    x,
                    first: 0,
                    to: rows.write(),
                });
            });
            return Self::Rows(rows);
        }
        let mut columns = Panel::new(k.cols(), k.rows());
        let tasks = chunks(0..k.rows(), TILE).zip(columns.write().col_chunks(TILE));
        attention.for_each(1, tasks, |(keys, to)| {
            let first = keys.start;
            k.with(keys, |x| {
                run(LoadColumns {
                    transform,
                    x,
                    first,
                    to,
                });
            });
        });
        Self::Columns(columns)
    }

    /// `[key, width]`
    pub(super) fn rows(&self) -> Rows<'_, E> {
        match self {
            Self::Borrowed(rows) => *rows,
            Self::Rows(rows) => Rows::Matrix(rows.read()),
            Self::Columns(columns) => Rows::Matrix(columns.read().transposed()),
        }
    }
}

/// The transformed values of a head, `[key, value_width]`.
pub(super) enum Values<'a, E: Pooled> {
    /// They need no transform.
    Borrowed(Rows<'a, E>),
    /// A contiguous copy, on few pages.
    Copied(Panel<E>),
}

impl<'a, E: Pooled> Values<'a, E> {
    /// A copy if there is a transform, or if the values are many and several blocks of queries read them.
    pub(super) fn load(attention: &Attention<'_, E>, kv: usize, v: Rows<'a, E>) -> Self {
        let sizes = attention.sizes;
        let transform = &attention.value.of_head(kv, v.cols());
        let near = v.rows() < FAR || v.is_contiguous() || sizes.group() * sizes.query <= QUERIES;
        if near && transform.is_nothing() {
            return Self::Borrowed(v);
        }
        let mut copy = Panel::new(v.rows(), v.cols());
        let tasks = chunks(0..v.rows(), TILE).zip(copy.write().row_chunks(TILE));
        attention.for_each(1, tasks, |(keys, to)| {
            let first = keys.start;
            v.with(keys, |x| {
                run(LoadRows {
                    transform,
                    x,
                    first,
                    to,
                });
            });
        });
        Self::Copied(copy)
    }

    pub(super) fn rows(&self) -> Rows<'_, E> {
        match self {
            Self::Borrowed(rows) => *rows,
            Self::Copied(rows) => Rows::Matrix(rows.read()),
        }
    }
}
