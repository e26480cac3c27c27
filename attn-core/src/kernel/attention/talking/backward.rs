//! The derivative where heads talk to each other.
//!
//! ```text
//! pass 1    s, m, p as forward                    p from lse
//! pass 2    dw = dout vᵀ                          a product for every head
//! pass 3    dp[h] = Σ weights[g, h] dw[g]         dweights[g, h] += Σ dw[g] p[h]
//! pass 4    dm = g (dp - δ)                       row by row
//! pass 5    ds[h] = Σ scores[g, h] dm[g]          dscores[g, h] += Σ dm[g] s[h]
//! pass 6    dv += wᵀ dout                         three products for every head
//!           dk += scale dsᵀ q      dq = scale ds k
//! ```
//!
//! The blocks of queries are dealt out to tasks. A task has sums of its own for the gradients of keys, values and parameters, which are
//! added up in the order of the tasks.

use std::ops::Range;

use super::super::backward::Gradient;
use super::super::head_major::HeadMajor;
use super::super::heads::{row_chunks, some_rows_of};
use super::super::key_panels::{KeyPanels, TileGradients};
use super::super::load::{BackwardHeads, BackwardRows};
use super::super::paged::Rows;
use super::super::plan::{Head, QUERIES_PER_TASK, Tile, chunks};
use super::super::queries::Saved;
use super::super::sums::TaskSums;
use super::super::{Attention, Normalizer, Similarity, Sizes};
use super::normalize::Differentiate;
use super::planes::Planes;
use super::{BACKWARD_PLANES, Visited, mix, mix_into};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{Threads, WriteMode, call, product, run};

/// The number of tasks that is worth having.
const TASKS: usize = 8;

/// Some blocks of queries, and their sums.
struct Task<'a, E: Pooled> {
    /// The queries of a block, and the gradients of them, of every head.
    blocks: Vec<(Range<usize>, Vec<MatrixMut<'a, E>>)>,
    /// The gradients of keys, `[kv_heads, key, width]`, or `[kv_heads, width, key]` if the similarity is additive.
    d_k: Buffer<E>,
    /// `[kv_heads, key, value_width]`
    d_v: Buffer<E>,
    /// `[heads]`, or nothing if it is not requested.
    d_sink: Buffer<E>,
    /// The gradients of the matrices that mix scores and weights, `[2, heads, heads]`.
    mixing: &'a mut [E],
    /// The sums of every key head.
    sums: Vec<TaskSums<'a, E>>,
}

/// The values of a sequence that a block reads.
struct Sequence<'s, 'a, E: Pooled> {
    saved: &'s Saved<'a, E>,
    /// The keys and values of every key head.
    keys: &'s [KeyPanels<E>],
}

impl<E: Pooled> Attention<'_, E> {
    /// The number of tasks of a sequence, which depends on the shapes alone.
    pub(in super::super) fn tasks_of_heads(&self) -> usize {
        let rows = self.queries_of_block(BACKWARD_PLANES);
        let blocks = self.sizes.query.div_ceil(rows);
        TASKS.div_ceil(self.sizes.batch.max(1)).min(blocks).max(1)
    }

    /// The gradients of a sequence.
    pub(in super::super) fn backward_talking(&self, saved: &Saved<'_, E>, d: Gradient<'_, E>) {
        let sizes = self.sizes;
        let keys = saved.k.iter().zip(&saved.v).enumerate();
        let keys: Vec<_> = keys
            .map(|(kv, (k, v))| KeyPanels::load(self, kv, [*k, *v], 0))
            .collect();
        let sequence = Sequence { saved, keys: &keys };
        let mut d_q = HeadMajor::uninit(sizes.heads, sizes.query, sizes.width);
        let count = self.tasks_of_heads();
        let mut of_tasks: Vec<Vec<_>> = (0..count).map(|_| Vec::new()).collect();
        for (i, sums) in d.sums.tasks.into_iter().enumerate() {
            of_tasks[i % count].push(sums);
        }
        let mixing = equal_chunks(d.sums.mixing, count);
        let sinks = d.sums.sink.len();
        let tasks = of_tasks.into_iter().zip(mixing);
        let tasks = tasks.map(|(sums, mixing)| Task {
            blocks: Vec::new(),
            d_k: Buffer::zeros(sizes.kv_heads * sizes.key * sizes.width),
            d_v: Buffer::zeros(sizes.kv_heads * sizes.key * sizes.value_width),
            d_sink: Buffer::zeros(sinks),
            mixing,
            sums,
        });
        let mut tasks: Vec<_> = tasks.collect();
        let rows = self.queries_of_block(BACKWARD_PLANES);
        let blocks = chunks(0..sizes.query, rows).zip(d_q.row_chunks(rows));
        for (i, block) in blocks.enumerate() {
            tasks[i % count].blocks.push(block);
        }
        self.for_each(sizes.kv_heads, tasks.iter_mut(), |task| {
            for (queries, d_q) in std::mem::take(&mut task.blocks) {
                self.backward_block_of_heads(&sequence, queries, d_q, task);
            }
        });
        self.finish_keys(saved, &mut tasks, (d.k, d.v));
        d.sums.sink.fill(E::ZERO);
        for task in &tasks {
            call::axpy(E::ONE, &task.d_sink, d.sums.sink);
        }
        drop(tasks);
        let to = row_chunks(d.q, QUERIES_PER_TASK).zip(d.sums.query_gains);
        let chunks = chunks(0..sizes.query, QUERIES_PER_TASK).zip(to);
        self.for_each(sizes.kv_heads, chunks, |(range, (to, d_gain))| {
            let rows = (0..sizes.heads).map(|h| d_q.of(h).some_rows(range.clone()));
            run(BackwardHeads {
                transform: &self.query,
                x: some_rows_of(&saved.q, &range),
                first: range.start,
                d: rows.collect(),
                to,
                d_gain,
            });
        });
    }

    /// Adds up the gradients of keys and values of all tasks.
    fn finish_keys(
        &self,
        saved: &Saved<'_, E>,
        tasks: &mut [Task<'_, E>],
        (d_k, d_v): (Vec<MatrixMut<'_, E>>, Vec<MatrixMut<'_, E>>),
    ) {
        let Sizes {
            key,
            width,
            value_width,
            ..
        } = self.sizes;
        let [first, others @ ..] = tasks else {
            return;
        };
        for task in others {
            call::axpy(E::ONE, &task.d_k, &mut first.d_k);
            call::axpy(E::ONE, &task.d_v, &mut first.d_v);
        }
        for (kv, (to_k, mut to_v)) in d_k.into_iter().zip(d_v).enumerate() {
            let d = &first.d_k[kv * key * width..][..key * width];
            let mut rows = Panel::new(key, width);
            let d = match self.similarity {
                Similarity::Dot { .. } => Matrix::new(d, key, width),
                Similarity::Additive { .. } => {
                    transpose(Matrix::new(d, width, key), rows.write());
                    rows.read()
                }
            };
            run(BackwardRows {
                transform: &self.key.of_head(kv, width),
                x: saved.k[kv],
                first: 0,
                d,
                to: to_k,
                d_gain: &mut *first.sums[kv].key_gain,
            });
            let d = &first.d_v[kv * key * value_width..][..key * value_width];
            let d = Matrix::new(d, key, value_width);
            (0..key).for_each(|row| to_v.row_mut(row).copy_from_slice(d.row(row)));
        }
    }

    fn backward_block_of_heads(
        &self,
        of: &Sequence<'_, '_, E>,
        queries: Range<usize>,
        mut d_q: Vec<MatrixMut<'_, E>>,
        task: &mut Task<'_, E>,
    ) {
        let heads = self.sizes.heads;
        let rows = queries.len();
        let visited = self.visited(of.saved.b, queries.clone());
        let q = self.rows_of_heads(&of.saved.q, &queries);
        let mut similarities = match self.score {
            Some(_) => Planes::uninit(heads, rows, visited.cols),
            None => Planes::none(),
        };
        let kept = self.score.map(|_| &mut similarities);
        let keys = |kv: usize| Rows::Matrix(of.keys[kv].columns.read().transposed());
        let mut scores = self.scores_of_heads(&visited, &q, keys, kept);
        let mut weights = Planes::none();
        mix_into(self.talking.scores, &mut scores, &mut weights);
        let mixed = self.talking.weigh.map(|_| weights.clone());
        self.weigh(&visited, &mut weights);
        visited.write_hidden(-E::INFINITY, &mut weights);

        let [of_scores, of_weights] = [self.talking.scores, self.talking.weights];
        let (d_of_scores, d_of_weights) = task.mixing.split_at_mut(heads * heads);
        let mut d_mixed = self.weight_gradients(of, &visited, &queries);
        let mut d = Planes::none();
        mix_into(of_weights.map(Matrix::transposed), &mut d_mixed, &mut d);
        self.differentiate(of, &queries, &mut weights, &mut d, &mut task.d_sink);
        if of_weights.is_some() {
            add_products(d_of_weights, &d_mixed, &weights);
        }
        let mut spare = d_mixed;
        mix(of_weights, &mut weights, &mut spare);
        self.drop_weights(&visited, &mut weights);

        if let Some(mixed) = mixed {
            self.weigh_backward(&visited, &mixed, &mut d);
        }
        if of_scores.is_some() {
            add_products(d_of_scores, &d, &scores);
        }
        mix(of_scores.map(Matrix::transposed), &mut d, &mut spare);
        self.score_backward(&visited, &similarities, &mut d, &mut task.sums);
        for (h, d_q) in d_q.iter_mut().enumerate() {
            d_q.reborrow().fill(E::ZERO);
            for (tile, columns) in visited.of_head(h) {
                let pairs = [&weights, &d].map(|of| of.head(h).some_cols(columns.clone()));
                let d_out = of.saved.d_out[h].some_rows(queries.clone());
                let vectors = (q.head(h), d_out, d_q.reborrow());
                self.add_gradients(of, &tile, pairs, vectors, task);
            }
        }
    }

    /// From the gradient of modified scores to that of similarities, in place.
    fn score_backward(
        &self,
        visited: &Visited<E>,
        similarities: &Planes<E>,
        d: &mut Planes<E>,
        sums: &mut [TaskSums<'_, E>],
    ) {
        let Some(score) = self.score else {
            return;
        };
        for h in 0..self.sizes.heads {
            let sums = &mut sums[h / self.sizes.group()];
            for (tile, columns) in visited.of_head(h) {
                let similarities = similarities.head(h).some_cols(columns.clone());
                let mut d = d.head_mut(h).some_cols(columns);
                score.backward(tile.origin(), similarities, &mut d, sums.score(&tile));
            }
        }
    }

    /// From the gradient of weights that are a function of mixed scores to that of these, in place.
    fn weigh_backward(&self, visited: &Visited<E>, mixed: &Planes<E>, d: &mut Planes<E>) {
        let Some(weigh) = self.talking.weigh else {
            return;
        };
        for h in 0..self.sizes.heads {
            for (tile, columns) in visited.of_head(h) {
                let mixed = mixed.head(h).some_cols(columns.clone());
                let mut d = d.head_mut(h).some_cols(columns);
                weigh.backward(tile.origin(), mixed, &mut d, None);
            }
        }
    }

    /// The gradients of the weights of all heads, 0 where masked.
    fn weight_gradients(
        &self,
        of: &Sequence<'_, '_, E>,
        visited: &Visited<E>,
        queries: &Range<usize>,
    ) -> Planes<E> {
        let mut d = Planes::uninit(self.sizes.heads, queries.len(), visited.cols);
        for h in 0..self.sizes.heads {
            let head = Head { b: of.saved.b, h };
            let d_out = of.saved.d_out[h].some_rows(queries.clone());
            let values = of.keys[h / self.sizes.group()].value_columns.read();
            let given = of.saved.d_weights.map(|d| self.pairs(d, head, queries));
            for (tile, columns) in visited.of_head(h) {
                let mut to = d.head_mut(h).some_cols(columns);
                let mut into = WriteMode::Overwrite;
                if let Some(given) = given {
                    for row in 0..to.rows() {
                        let given = &given.row(row)[tile.keys.clone()];
                        to.row_mut(row).copy_from_slice(given);
                    }
                    into = WriteMode::Add;
                }
                let values = values.some_cols(tile.keys);
                product(to, into, E::ONE, d_out, values, Threads::One);
            }
        }
        self.drop_weights(visited, &mut d);
        visited.write_hidden(E::ZERO, &mut d);
        d
    }

    /// Pass 4: scores become weights, and the gradients of weights those of scores. Adds those of the sinks.
    fn differentiate(
        &self,
        of: &Sequence<'_, '_, E>,
        queries: &Range<usize>,
        scores: &mut Planes<E>,
        d: &mut Planes<E>,
        d_sink: &mut [E],
    ) {
        let of_head = |x: &'_ [E], h: usize| -> Range<usize> {
            let first = h * self.sizes.query;
            debug_assert!(first + queries.end <= x.len(), "a number for every query");
            first + queries.start..first + queries.end
        };
        let planes = scores.heads_mut().zip(d.heads_mut()).enumerate();
        for (h, (scores, d)) in planes {
            let lse = &of.saved.lse[of_head(of.saved.lse, h)];
            let deltas = run(Differentiate {
                normalizer: self.normalizer,
                lse,
                d_lse: of.saved.d_lse.map(|d| &d[of_head(d, h)]),
                scores,
                d,
            });
            if let Normalizer::Sink(sinks) = self.normalizer
                && !d_sink.is_empty()
            {
                for (lse, delta) in lse.iter().zip(deltas) {
                    // Rounding must not lift the sink above the sum.
                    let weight: f64 = (sinks[h] - *lse).into();
                    d_sink[h] -= E::of_f64(weight.min(0.0).exp()) * delta;
                }
            }
        }
    }

    /// Pass 6, for a tile. `pairs`: weights, and the gradient of similarities. `vectors`: queries, the gradient of the output, and that of the
    /// queries.
    fn add_gradients(
        &self,
        of: &Sequence<'_, '_, E>,
        tile: &Tile,
        pairs: [Matrix<'_, E>; 2],
        (q, d_out, d_q): (Matrix<'_, E>, Matrix<'_, E>, MatrixMut<'_, E>),
        task: &mut Task<'_, E>,
    ) {
        let Sizes {
            key,
            width,
            value_width,
            ..
        } = self.sizes;
        let kv = tile.head.h / self.sizes.group();
        let d_k = &mut task.d_k[kv * key * width..][..key * width];
        let d_v = &mut task.d_v[kv * key * value_width..][..key * value_width];
        let to = TileGradients {
            q: d_q,
            k: match self.similarity {
                Similarity::Dot { .. } => MatrixMut::new(d_k, key, width),
                Similarity::Additive { .. } => MatrixMut::new(d_k, width, key),
            },
            v: MatrixMut::new(d_v, key, value_width),
            w: task.sums[kv].w(tile),
        };
        of.keys[kv].add_gradients(self, tile, tile.keys.clone(), pairs, [q, d_out], to);
    }
}

/// `to[g, h] += Σ d[g] x[h]`, over all pairs.
fn add_products<E: Pooled>(to: &mut [E], d: &Planes<E>, x: &Planes<E>) {
    let heads = d.pairs().rows();
    product(
        MatrixMut::new(to, heads, heads),
        WriteMode::Add,
        E::ONE,
        d.pairs(),
        x.pairs().transposed(),
        Threads::One,
    );
}
