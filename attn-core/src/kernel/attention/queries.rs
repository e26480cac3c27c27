//! The queries of a sequence in the backward pass, and their gradients.

use std::{iter, mem, ops::Range};

use super::head_major::HeadMajor;
use super::heads::{Heads, some_rows_of};
use super::load::LoadHeads;
use super::plan::{Head, QUERIES, QUERIES_PER_TASK, Tile, chunks};
use super::rounded::{Loaded, RoundedHeads, RoundedVectors, scale_rows};
use super::sums::sum_into;
use super::weights::{RowDots, SinkGradients};
use super::{Attention, HeadTransform, OutputGradients, Sizes};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// The inputs of the backward pass, as in [`Attention::backward`].
pub(super) struct Inputs<'a, E> {
    pub q: Heads<Matrix<'a, E>>,
    pub k: Heads<Matrix<'a, E>>,
    pub v: Heads<Matrix<'a, E>>,
    /// The output, or the centres of a sparse normalizer, which take its place in `δ`.
    pub out: Heads<Matrix<'a, E>>,
    /// `[batch, heads, query]`
    pub lse: &'a [E],
    pub d_out: OutputGradients<'a, E>,
    /// The part of `δ` that comes from the gradients of weights and `lse`, `[batch, heads, query]`. `None` where heads talk.
    pub shares: Option<&'a [E]>,
}

/// The [`Inputs`] of a sequence, with a matrix for every head.
pub(super) struct Saved<'a, E> {
    pub b: usize,
    /// `[query, width]`
    pub q: Vec<Matrix<'a, E>>,
    /// `[key, width]`
    pub k: Vec<Matrix<'a, E>>,
    /// `[key, value_width]`
    pub v: Vec<Matrix<'a, E>>,
    /// `[query, value_width]`
    pub out: Vec<Matrix<'a, E>>,
    /// `[heads, query]`
    pub lse: &'a [E],
    /// `[query, value_width]`
    pub d_out: Vec<Matrix<'a, E>>,
    /// The gradients of the weights, of all sequences.
    pub d_weights: Option<&'a [E]>,
    /// `[heads, query]`
    pub d_lse: Option<&'a [E]>,
    /// `[heads, query]`
    pub shares: Option<&'a [E]>,
}

impl<'a, E> Inputs<'a, E> {
    /// The inputs of sequence `b`.
    pub(super) fn of_sequence(&self, sizes: Sizes, b: usize) -> Saved<'a, E> {
        let of_queries = [sizes.batch, sizes.heads];
        let of_keys = [sizes.batch, sizes.kv_heads];
        let rows = sizes.heads * sizes.query;
        let rows = |x: &'a [E]| &x[b * rows..][..rows];
        Saved {
            b,
            q: self.q.of_sequence(of_queries, b),
            k: self.k.of_sequence(of_keys, b),
            v: self.v.of_sequence(of_keys, b),
            out: self.out.of_sequence(of_queries, b),
            lse: rows(self.lse),
            d_out: self.d_out.out.of_sequence(of_queries, b),
            d_weights: self.d_out.weights.as_ref().map(|of| of.d),
            d_lse: self.d_out.lse.map(rows),
            shares: self.shares.map(rows),
        }
    }
}

/// The inputs of a backward pass, per query.
pub(super) struct Queries<'a, E: Pooled> {
    sizes: Sizes,
    vectors: SequenceVectors<'a, E>,
    /// `[heads, query]`
    lse: &'a [E],
    /// `δ`: `Σ dout * out` and what other gradients add to that, `[query, heads]`.
    delta: Buffer<E>,
    /// The gradients of the weights, of all sequences.
    d_weights: Option<&'a [E]>,
    /// `[heads, query]`
    shares: Option<&'a [E]>,
}

/// The transformed queries and the gradient of the output.
enum SequenceVectors<'a, E: Pooled> {
    /// Where they stand. A block loads its part, for each block of keys that it meets.
    Given {
        /// `[query, width]` for every head.
        q: Vec<Matrix<'a, E>>,
        /// `[query, value_width]` for every head.
        d_out: Vec<Matrix<'a, E>>,
        /// The transformed queries, if the transform takes longer than to load them.
        rows: Option<HeadMajor<E>>,
    },
    /// Rounded to bf16, the queries times the scale.
    Rounded {
        rows: RoundedHeads,
        d_out: RoundedHeads,
    },
}

/// The same of a block of queries of a head.
pub(super) enum BlockVectors<'a, E: Pooled> {
    Whole {
        /// `[queries, width]`
        q: Loaded<'a, E>,
        /// `[queries, value_width]`
        d_out: Loaded<'a, E>,
    },
    Rounded {
        q: RoundedVectors<'a>,
        d_out: RoundedVectors<'a>,
    },
}

/// The inputs of a backward pass for a block of queries of a head.
pub(super) struct QueryBlock<'a, E: Pooled> {
    pub vectors: BlockVectors<'a, E>,
    /// `[queries]`
    pub lse: &'a [E],
    delta: [E; QUERIES],
    /// The gradient of the weights, `[queries, key]`.
    pub d_weights: Option<Matrix<'a, E>>,
}

impl<E: Pooled> QueryBlock<'_, E> {
    /// `[queries]`
    pub(super) fn delta(&self) -> &[E] {
        &self.delta[..self.lse.len()]
    }
}

impl<'a, E: Pooled> Queries<'a, E> {
    pub(super) fn load(attention: &Attention<'_, E>, saved: &Saved<'a, E>) -> Self {
        let sizes = attention.sizes;
        let mut delta = Buffer::uninit(sizes.query * sizes.heads);
        let to = MatrixMut::new(&mut delta, sizes.query, sizes.heads);
        let vectors = SequenceVectors::load(attention, saved, to);
        Self {
            sizes,
            vectors,
            lse: saved.lse,
            delta,
            d_weights: saved.d_weights,
            shares: saved.shares,
        }
    }

    /// The part of a sequence in the gradient of the sinks, `[heads]`.
    pub(super) fn sink_gradients(&self, sink: &[E], to: &mut [E]) {
        let Sizes { heads, query, .. } = self.sizes;
        run(SinkGradients {
            sink,
            lse: Matrix::new(self.lse, heads, query),
            delta: Matrix::new(&self.delta, query, heads),
            shares: self.shares.map(|shares| Matrix::new(shares, heads, query)),
            to,
        });
    }

    /// A range of queries of a head.
    pub(super) fn block<'b>(
        &'b self,
        attention: &Attention<'_, E>,
        head: Head,
        range: Range<usize>,
    ) -> QueryBlock<'b, E> {
        let Sizes {
            heads,
            query,
            width,
            ..
        } = self.sizes;
        let mut delta = [E::ZERO; QUERIES];
        for (delta, row) in delta.iter_mut().zip(range.clone()) {
            *delta = self.delta[row * heads + head.h];
        }
        QueryBlock {
            vectors: match &self.vectors {
                SequenceVectors::Given { q, d_out, rows } => {
                    let load = |transform: &HeadTransform<'_, E>, x: Matrix<'a, E>| {
                        Loaded::dense(transform, x.some_rows(range.clone()), range.start)
                    };
                    BlockVectors::Whole {
                        q: match rows {
                            Some(rows) => Loaded::Given(rows.of(head.h).some_rows(range.clone())),
                            None => load(&attention.query.of_head(head.h, width), q[head.h]),
                        },
                        d_out: load(&HeadTransform::default(), d_out[head.h]),
                    }
                }
                SequenceVectors::Rounded { rows, d_out } => BlockVectors::Rounded {
                    q: rows.of(head.h, range.clone()),
                    d_out: d_out.of(head.h, range.clone()),
                },
            },
            d_weights: self.d_weights.map(|d| attention.pairs(d, head, &range)),
            lse: &self.lse[head.h * query..][range],
            delta,
        }
    }
}

impl<'a, E: Pooled> SequenceVectors<'a, E> {
    /// Loads the queries and gradients, as far as blocks do not do it, and writes `δ`, `[query, heads]`.
    fn load(attention: &Attention<'_, E>, saved: &Saved<'a, E>, delta: MatrixMut<'_, E>) -> Self {
        let Sizes {
            heads,
            query,
            width,
            value_width,
            ..
        } = attention.sizes;
        match attention.rounded_scale() {
            None => {
                let is_shift = attention.query.is_shift();
                let mut rows = (!is_shift).then(|| HeadMajor::uninit(heads, query, width));
                match &mut rows {
                    None => for_each_task(attention, saved, delta, iter::repeat(()), |_, ()| {}),
                    Some(rows) => {
                        let to = rows.row_chunks(QUERIES_PER_TASK);
                        for_each_task(attention, saved, delta, to, |range, rows| {
                            load_queries(attention, saved, range, rows);
                        });
                    }
                }
                let (q, d_out) = (saved.q.clone(), saved.d_out.clone());
                Self::Given { q, d_out, rows }
            }
            Some(scale) => {
                let mut rows = RoundedHeads::uninit(heads, query, width);
                let mut d_out = RoundedHeads::uninit(heads, query, value_width);
                let to = rows.row_chunks(QUERIES_PER_TASK);
                let to = to.zip(d_out.row_chunks(QUERIES_PER_TASK));
                for_each_task(attention, saved, delta, to, |range, (to_rows, to_d_out)| {
                    let mut rows = HeadMajor::uninit(heads, range.len(), width);
                    load_queries(attention, saved, range, rows.heads().collect());
                    let pairs = to_rows.into_iter().zip(rows.heads());
                    pairs.for_each(|(to, rows)| to.write_scaled(scale, rows));
                    let d_out = some_rows_of(&saved.d_out, range);
                    let pairs = to_d_out.into_iter().zip(d_out);
                    pairs.for_each(|(to, d_out)| to.write(d_out));
                });
                Self::Rounded { rows, d_out }
            }
        }
    }
}

/// Calls `load` with the queries of every task and with what they are loaded to, and writes their part of `δ`, `[query, heads]`.
fn for_each_task<E: Pooled, T: Send>(
    attention: &Attention<'_, E>,
    saved: &Saved<'_, E>,
    delta: MatrixMut<'_, E>,
    to: impl Iterator<Item = T>,
    load: impl Fn(&Range<usize>, T) + Send + Sync,
) {
    let Sizes {
        kv_heads, query, ..
    } = attention.sizes;
    let delta = delta.row_chunks(QUERIES_PER_TASK);
    let tasks = chunks(0..query, QUERIES_PER_TASK).zip(delta).zip(to);
    attention.for_each(kv_heads, tasks, |((range, delta), to)| {
        load(&range, to);
        write_delta(saved, range, delta);
    });
}

/// Loads a range of queries, transformed, `[queries, width]` for every head.
fn load_queries<E: Pooled>(
    attention: &Attention<'_, E>,
    saved: &Saved<'_, E>,
    range: &Range<usize>,
    to: Vec<MatrixMut<'_, E>>,
) {
    run(LoadHeads {
        transform: &attention.query,
        x: some_rows_of(&saved.q, range),
        first: range.start,
        to,
    });
}

/// Writes `δ` of a range of queries, `[queries, heads]`.
fn write_delta<E: Pooled>(saved: &Saved<'_, E>, range: Range<usize>, to: MatrixMut<'_, E>) {
    let heads = to.cols();
    let query = saved.lse.len().checked_div(heads).unwrap_or(0);
    run(RowDots {
        out: some_rows_of(&saved.out, &range),
        d_out: some_rows_of(&saved.d_out, &range),
        shares: saved
            .shares
            .map(|shares| Matrix::new(shares, heads, query).some_cols(range)),
        to,
    });
}

/// The gradients of the transformed queries of a sequence, where they are not those of the queries: a sum over the tasks of a key head, or
/// before the derivative of a transform. Every key head has one part per task, with the query heads that read the key head.
pub(super) struct QueryGradients<E: Pooled> {
    sizes: Sizes,
    tasks: usize,
    parts: HeadMajor<E>,
}

/// The gradients that one task writes.
pub(super) struct TaskQueryGradients<'a, E> {
    /// `[query, width]` for every query head of the key head.
    heads: Vec<MatrixMut<'a, E>>,
    /// The blocks of queries of every head that have been written. Others are not initialised.
    written: Vec<bool>,
}

impl<E: Pooled> QueryGradients<E> {
    /// Buffers for this many tasks per key head.
    pub(super) fn new(sizes: Sizes, tasks: usize) -> Self {
        let parts = HeadMajor::uninit(sizes.heads * tasks, sizes.query, sizes.width);
        Self {
            sizes,
            tasks,
            parts,
        }
    }

    /// The part of every task.
    pub(super) fn parts(&mut self) -> impl Iterator<Item = TaskQueryGradients<'_, E>> {
        TaskQueryGradients::of_tasks(self.sizes, self.parts.heads())
    }

    /// The gradient of a range of queries, `[queries, width]` for every head: that of the only task, or the sum over all tasks,
    /// which is written to `memory`.
    pub(super) fn rows<'a>(
        &'a self,
        range: Range<usize>,
        memory: &'a mut HeadMajor<E>,
    ) -> Vec<Matrix<'a, E>> {
        let group = self.sizes.group();
        let tasks = self.tasks;
        let part = |h: usize, task| {
            let parts_before = h / group * tasks + task;
            self.parts
                .of(parts_before * group + h % group)
                .some_rows(range.clone())
        };
        if tasks == 1 {
            return (0..self.sizes.heads).map(|h| part(h, 0)).collect();
        }
        for (h, mut to) in memory.heads().enumerate() {
            for row in 0..to.rows() {
                let parts: Vec<_> = (0..tasks).map(|task| part(h, task)).collect();
                sum_into(parts.iter().map(|part| part.row(row)), to.row_mut(row));
            }
        }
        let memory = &*memory;
        (0..self.sizes.heads).map(|h| memory.of(h)).collect()
    }
}

impl<'a, E: Pooled> TaskQueryGradients<'a, E> {
    /// The gradients of tasks, each of which writes those of the query heads of a key head: `heads` are these, side by side.
    pub(super) fn of_tasks(
        sizes: Sizes,
        mut heads: impl Iterator<Item = MatrixMut<'a, E>>,
    ) -> impl Iterator<Item = Self> {
        let group = sizes.group();
        let blocks = group * sizes.query.div_ceil(QUERIES);
        iter::from_fn(move || {
            let heads: Vec<_> = heads.by_ref().take(group).collect();
            let written = vec![false; blocks];
            (!heads.is_empty()).then_some(Self { heads, written })
        })
    }

    /// The gradient of the queries of a tile, `[queries, width]`.
    pub(super) fn of_tile(&mut self, tile: &Tile) -> MatrixMut<'_, E> {
        let head = tile.head.h % self.heads.len();
        let heads = self.heads.len();
        let blocks = self.written.len() / heads;
        let block = head * blocks + tile.queries.start / QUERIES;
        let of_head = self.heads[head].reborrow();
        let mut rows = of_head.some_rows(tile.queries.clone());
        if !mem::replace(&mut self.written[block], true) {
            rows.fill(E::ZERO);
        }
        rows
    }

    /// Multiplies the gradients by a scale, and writes zeros to the blocks that nothing was added to.
    pub(super) fn finish(self, scale: E) {
        let blocks = self.heads.into_iter().flat_map(|d| d.row_chunks(QUERIES));
        for (mut rows, written) in blocks.zip(self.written) {
            match written {
                false => rows.fill(E::ZERO),
                true => scale_rows(scale, rows),
            }
        }
    }
}
