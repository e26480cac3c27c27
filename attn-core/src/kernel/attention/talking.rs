//! Heads that talk to each other: Shazeer et al., "Talking-heads attention" (2020).
//!
//! A mixed score is a sum over the scores of all heads. So a block of queries is one of all heads, and all of its scores are in memory:
//! `[heads, queries, keys]`, over the keys that it visits. A block has so few queries that this is some hundred kilobytes.
//!
//! ```text
//! pass 1    s = score(scale q kᵀ)                 a product for every head
//! pass 2    m[g] = Σ scores[g, h] s[h]            a product of all heads, then -∞ where masked
//! pass 3    p = normalizer(m)                     row by row
//! pass 4    w[g] = Σ weights[g, h] p[h]           a product of all heads
//! pass 5    out = w v                             a product for every head
//! ```
//!
//! The mask is the same for all heads. A masked pair counts as 0 in the products of all heads, so that NaN behind the mask stays there.

mod backward;
mod normalize;
mod planes;

use std::ops::Range;

use super::dropout_mask::DropoutMask;
use super::forward::{Keys, Results, Values};
use super::heads::{Heads, side_by_side};
use super::load::LoadRows;
use super::masked_weights::MaskedWeights;
use super::paged::{KeySource, Rows};
use super::plan::{Head, QUERIES, Tile, chunks};
use super::softmax_state::OnlineSoftmaxState;
use super::sparse::Sparsify;
use super::weight_rows::Normalize;
use super::weights::{ApplyDropout, OnlineSoftmax, WriteLse};
use super::{Attention, Normalizer, Outputs};
use crate::kernel::panel::Panel;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, product, run};
use planes::{Planes, WriteHidden};

/// The memory of a block, in bytes, unless a single query needs more: about that of a second-level cache.
const BYTES: usize = 1 << 20;

/// The minimum number of queries of a block, for products of sufficient size.
const MIN_QUERIES: usize = 4;

/// The numbers of all pairs that the forward pass has in memory at a time.
const FORWARD_PLANES: usize = 2;

/// The same of the backward pass.
const BACKWARD_PLANES: usize = 4;

/// The keys that a block of queries visits, side by side.
struct Visited<E: Pooled> {
    /// The tiles of the first head, each with its columns.
    tiles: Vec<(Tile, Range<usize>)>,
    /// The number of columns.
    cols: usize,
    /// 0, or -∞ where the mask hides a pair, `[queries, cols]`. `None` if it hides none.
    hidden: Option<Panel<E>>,
}

impl<E: Pooled> Visited<E> {
    /// The tiles of a head.
    fn of_head(&self, h: usize) -> impl Iterator<Item = (Tile, Range<usize>)> {
        let tiles = self.tiles.iter();
        tiles.map(move |(tile, columns)| (tile.of_head(h), columns.clone()))
    }

    /// Writes a number to the masked pairs of all heads.
    fn write_hidden(&self, number: E, planes: &mut Planes<E>) {
        if let Some(hidden) = &self.hidden {
            planes.heads_mut().for_each(|to| {
                let hidden = hidden.read();
                run(WriteHidden { hidden, number, to });
            });
        }
    }
}

impl<E: Pooled> Attention<'_, E> {
    pub(super) fn forward_talking(
        &self,
        q: Heads<Matrix<'_, E>>,
        [k, v]: [KeySource<'_, E>; 2],
        to: Outputs<'_, E>,
        lse: &mut [E],
    ) {
        let sizes = self.sizes;
        let [of_queries, of_keys] = [sizes.heads, sizes.kv_heads].map(|heads| [sizes.batch, heads]);
        let mut results = self.results(to, lse);
        let sequences = (0..sizes.batch).map(|b| (b, results.by_ref().take(sizes.heads).collect()));
        let all = sizes.batch * sizes.kv_heads;
        self.for_each(
            all,
            sequences,
            |(b, results): (usize, Vec<Results<'_, E>>)| {
                let this = self.of_sequence(b);
                let q = q.of_sequence(of_queries, b);
                let heads = 0..sizes.kv_heads;
                let keys = heads
                    .clone()
                    .map(|kv| Keys::load(&this, kv, k.of(of_keys, b, kv)));
                let keys: Vec<_> = keys.collect();
                let values = heads.map(|kv| Values::load(&this, kv, v.of(of_keys, b, kv)));
                let values: Vec<_> = values.collect();
                let rows = this.queries_of_block(FORWARD_PLANES);
                let results = side_by_side(results.into_iter().map(|of| of.row_chunks(rows)));
                let blocks = chunks(0..sizes.query, rows).zip(results);
                this.for_each(sizes.kv_heads, blocks, |(queries, results)| {
                    this.forward_block_of_heads(b, &q, (&keys, &values), queries, results);
                });
            },
        );
    }

    /// The number of queries of a block, which depends on the shapes alone.
    fn queries_of_block(&self, planes: usize) -> usize {
        let pairs = self.sizes.heads * self.sizes.key * planes;
        let fitting = BYTES / (pairs * size_of::<E>()).max(1);
        fitting.clamp(MIN_QUERIES, QUERIES)
    }

    fn forward_block_of_heads(
        &self,
        b: usize,
        q: &[Matrix<'_, E>],
        (keys, values): (&[Keys<'_, E>], &[Values<'_, E>]),
        queries: Range<usize>,
        results: Vec<Results<'_, E>>,
    ) {
        let group = self.sizes.group();
        let visited = self.visited(b, queries.clone());
        let q = self.rows_of_heads(q, &queries);
        let mut scores = self.scores_of_heads(&visited, &q, |kv| keys[kv].rows(), None);
        let mut spare = Planes::none();
        mix(self.talking.scores, &mut scores, &mut spare);
        self.weigh(&visited, &mut scores);
        visited.write_hidden(-E::INFINITY, &mut scores);
        let running = self.normalize(&visited, &mut scores);
        mix(self.talking.weights, &mut scores, &mut spare);
        let mut weights = scores;
        self.drop_weights(&visited, &mut weights);
        for (h, (results, running)) in results.into_iter().zip(running).enumerate() {
            let mut out = results.out;
            out.reborrow().fill(E::ZERO);
            for (tile, columns) in visited.of_head(h) {
                let of_tile = MaskedWeights {
                    mask: self.mask,
                    tile: &tile,
                    matrix: weights.head(h).some_cols(columns),
                };
                values[h / group].rows().with(tile.keys.clone(), |values| {
                    of_tile.add_matmul(E::ONE, values, out.reborrow());
                });
            }
            if let Some(to) = results.weights {
                spread(&visited, weights.head(h), to);
            }
            let lse = results.lse;
            run(WriteLse {
                running: &running,
                lse,
            });
        }
    }

    /// The keys that a block of queries visits.
    fn visited(&self, b: usize, queries: Range<usize>) -> Visited<E> {
        let mut cols = 0;
        let rows = queries.len();
        let first = Head { b, h: 0 };
        let tiles = self.tiles(first, queries, 0..self.sizes.key);
        let tiles = tiles.map(|tile| {
            let start = cols;
            cols += tile.keys.len();
            (tile, start..cols)
        });
        let tiles: Vec<_> = tiles.collect();
        let mut hidden = None;
        if tiles.iter().any(|(tile, _)| tile.is_partial()) {
            let mut pairs = Panel::new(rows, cols);
            pairs.write().fill(E::ZERO);
            for (tile, columns) in &tiles {
                self.hide(tile, &mut pairs.write().some_cols(columns.clone()));
            }
            hidden = Some(pairs);
        }
        Visited {
            tiles,
            cols,
            hidden,
        }
    }

    /// The transformed queries of a block, `[heads, queries, width]`.
    fn rows_of_heads(&self, q: &[Matrix<'_, E>], queries: &Range<usize>) -> Planes<E> {
        let width = self.sizes.width;
        let mut rows = Planes::uninit(self.sizes.heads, queries.len(), width);
        for (h, (q, to)) in q.iter().zip(rows.heads_mut()).enumerate() {
            run(LoadRows {
                transform: &self.query.of_head(h, width),
                x: q.some_rows(queries.clone()),
                first: queries.start,
                to,
            });
        }
        rows
    }

    /// Pass 1: the scores of all heads, 0 where masked. `keys` are those of a key head, `[key, width]`. The similarities, before the
    /// modification, are kept if they are asked for.
    fn scores_of_heads<'k>(
        &self,
        visited: &Visited<E>,
        q: &Planes<E>,
        keys: impl Fn(usize) -> Rows<'k, E>,
        mut similarities: Option<&mut Planes<E>>,
    ) -> Planes<E>
    where
        E: 'k,
    {
        let [heads, rows] = [self.sizes.heads, q.rows()];
        let mut scores = Planes::uninit(heads, rows, visited.cols);
        for h in 0..heads {
            let k = keys(h / self.sizes.group());
            for (tile, columns) in visited.of_head(h) {
                let mut to = scores.head_mut(h).some_cols(columns.clone());
                k.with(tile.keys.clone(), |k| {
                    self.similarities(&tile, q.head(h), k.transposed(), to.reborrow());
                });
                if let Some(kept) = &mut similarities {
                    let mut kept = kept.head_mut(h).some_cols(columns);
                    (0..rows).for_each(|row| kept.row_mut(row).copy_from_slice(to.row_mut(row)));
                }
                if let Some(score) = self.score {
                    score.apply(tile.origin(), &mut to);
                }
            }
        }
        visited.write_hidden(E::ZERO, &mut scores);
        scores
    }

    /// The weights of mixed scores, if they are a function of the score.
    fn weigh(&self, visited: &Visited<E>, scores: &mut Planes<E>) {
        let Some(weigh) = self.talking.weigh else {
            return;
        };
        for h in 0..self.sizes.heads {
            for (tile, columns) in visited.of_head(h) {
                weigh.apply(tile.origin(), &mut scores.head_mut(h).some_cols(columns));
            }
        }
    }

    /// Pass 3: from scores to weights, in place. Returns the maximum and the sum of every row, of every head.
    fn normalize(
        &self,
        visited: &Visited<E>,
        scores: &mut Planes<E>,
    ) -> Vec<OnlineSoftmaxState<E>> {
        let rows = scores.rows();
        let heads = scores.heads_mut().enumerate();
        let states = heads.map(|(h, mut scores)| {
            let mut running = OnlineSoftmaxState::new(self.normalizer, h);
            if let Some(normalizer) = self.normalizer.sparse() {
                run(Sparsify {
                    normalizer,
                    scores,
                    running: &mut running,
                });
                return running;
            }
            run(OnlineSoftmax {
                normalizer: self.normalizer,
                scores: scores.reborrow(),
                running: &mut running,
                sums: MatrixMut::without_cols(rows),
            });
            if self.normalizer != Normalizer::Identity {
                run(Normalize {
                    tiles: &[(0..visited.cols, running.max)],
                    running: &running,
                    weights: scores,
                });
            }
            running
        });
        states.collect()
    }

    /// Multiplies the weights by their factors of dropout, or the gradients of what was dropped.
    fn drop_weights(&self, visited: &Visited<E>, weights: &mut Planes<E>) {
        let Some(dropout) = self.dropout else {
            return;
        };
        for h in 0..self.sizes.heads {
            for (tile, columns) in visited.of_head(h) {
                run(ApplyDropout {
                    dropper: DropoutMask::new(dropout),
                    tile: &tile,
                    weights: weights.head_mut(h).some_cols(columns),
                });
            }
        }
    }
}

/// `to[g] = Σ matrix[g, h] x[h]`. Without a matrix the numbers of `x` are moved.
fn mix_into<E: Pooled>(matrix: Option<Matrix<'_, E>>, x: &mut Planes<E>, to: &mut Planes<E>) {
    let Some(matrix) = matrix else {
        return std::mem::swap(x, to);
    };
    to.resize_like(x);
    product(
        to.pairs_mut(),
        WriteMode::Overwrite,
        E::ONE,
        matrix,
        x.pairs(),
        Threads::One,
    );
}

/// `x[g] = Σ matrix[g, h] x[h]`, if there is a matrix. `spare` takes the memory of what was there.
fn mix<E: Pooled>(matrix: Option<Matrix<'_, E>>, x: &mut Planes<E>, spare: &mut Planes<E>) {
    if matrix.is_some() {
        mix_into(matrix, x, spare);
        std::mem::swap(x, spare);
    }
}

/// Writes the weights of the visited keys to those of all keys, `[queries, key]`.
fn spread<E: Pooled>(visited: &Visited<E>, weights: Matrix<'_, E>, mut to: MatrixMut<'_, E>) {
    to.reborrow().fill(E::ZERO);
    for (tile, columns) in &visited.tiles {
        for row in 0..to.rows() {
            let weights = &weights.row(row)[columns.clone()];
            to.row_mut(row)[tile.keys.clone()].copy_from_slice(weights);
        }
    }
}
