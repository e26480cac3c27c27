//! The backward pass.
//!
//! Keys are dealt out to tasks, in blocks, and with them the gradients of keys and values. Queries meet the keys of several
//! tasks, and so the gradient of a query is a sum over tasks.

use std::ops::Range;

use super::by_head::{ByHead, STRIP};
use super::key_block::KeyBlock;
use super::layout::{parts, shares};
use super::load::BackwardRows;
use super::plan::chunks;
use super::scratch::Panel;
use super::sums::{self, Sums, add_up};
use super::weights::Deltas;
use super::{Attention, Gradients, Prepare, Sizes};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// Keys of a block: their gradients stay in the second cache while all queries pass by.
const KEYS: usize = 512;

/// As many tasks are worth having: where there are fewer heads, the keys of a head are dealt out to several.
const TASKS: usize = 8;

/// Queries whose gradient is finished by a task.
const ROWS: usize = 64;

/// What the gradient is computed from.
pub(super) struct Saved<'a, E: Pooled> {
    /// The prepared queries.
    pub q: ByHead<E>,
    pub k: Matrix<'a, E>,
    pub v: Matrix<'a, E>,
    pub lse: &'a [E],
    pub d_out: ByHead<E>,
    /// `Σ dout * out`, `[batch * query, heads]`
    pub delta: Matrix<'a, E>,
}

/// Some blocks of keys of a head.
struct Task<'a, E> {
    blocks: Vec<KeyBlock<'a, E>>,
    sums: sums::Part<'a, E>,
}

impl<E: Pooled> Attention<'_, E> {
    /// The gradient, from that of the output: the derivative of [`forward`](Self::forward), which wrote `out` and `lse`.
    ///
    /// What a query does not attend to has no part in it, not even if one of the two, or the gradient of the query's
    /// output, is NaN.
    ///
    /// # Panics
    /// If the shapes are not those of the sizes.
    #[allow(
        clippy::too_many_arguments,
        reason = "the tensors of the forward pass, and one more"
    )]
    pub fn backward(
        &self,
        q: Matrix<'_, E>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
        out: Matrix<'_, E>,
        lse: &[E],
        d_out: Matrix<'_, E>,
        d: Gradients<'_, E>,
    ) {
        self.check([q, k, v], (out.rows(), out.cols()), lse.len());
        self.check([q, k, v], (d_out.rows(), d_out.cols()), lse.len());
        let delta = self.deltas(out, d_out);
        let delta = Matrix::new(&delta, out.rows(), self.sizes.heads);
        let saved = Saved {
            q: ByHead::load(self, &self.query, q),
            k,
            v,
            lse,
            d_out: ByHead::load(self, &Prepare::default(), d_out),
            delta,
        };
        let heads = self.sizes.batch * self.sizes.kv_heads;
        let tasks = TASKS
            .div_ceil(heads.max(1))
            .min(self.sizes.key.div_ceil(KEYS))
            .max(1);
        let mut sums = Sums::new(self, tasks, d.bias.is_some());
        let tasks = self.deal_out(tasks, d.k, d.v, &mut sums);
        self.for_each(tasks, |mut task| {
            for block in task.blocks {
                self.backward_block(&saved, block, &mut task.sums);
            }
        });
        self.finish_queries(q, &sums, d.q, d.query_gain);
        if let Some(to) = d.key_gain {
            sums.key_gain(to);
        }
        if let Some(to) = d.bias {
            sums.bias(to);
        }
        if let Some(to) = d.w {
            sums.w(to);
        }
    }

    fn deltas(&self, out: Matrix<'_, E>, d_out: Matrix<'_, E>) -> Buffer<E> {
        let (rows, heads) = (out.rows(), self.sizes.heads);
        let mut deltas = Buffer::stale(rows * heads);
        let parts = MatrixMut::new(&mut deltas, rows, heads).row_chunks(ROWS);
        self.for_each(chunks(0..rows, ROWS).zip(parts).collect(), |(rows, to)| {
            let (out, d_out) = (out.some_rows(rows.clone()), d_out.some_rows(rows));
            run(Deltas { out, d_out, to });
        });
        deltas
    }

    /// The blocks of every head in turn to each of its tasks: under a causal mask, the first ones have the most queries.
    fn deal_out<'a>(
        &self,
        tasks: usize,
        d_k: MatrixMut<'a, E>,
        d_v: MatrixMut<'a, E>,
        sums: &'a mut Sums<E>,
    ) -> Vec<Task<'a, E>> {
        let Sizes {
            batch,
            kv_heads,
            key,
            ..
        } = self.sizes;
        let mut dealt: Vec<_> = sums
            .parts()
            .map(|sums| Task {
                blocks: Vec::new(),
                sums,
            })
            .collect();
        let heads = parts(d_k, batch, kv_heads)
            .into_iter()
            .zip(parts(d_v, batch, kv_heads));
        for (((b, kv), (d_k, d_v)), tasks) in self
            .sizes
            .key_heads()
            .zip(heads)
            .zip(dealt.chunks_mut(tasks))
        {
            let parts = d_k.row_chunks(KEYS).into_iter().zip(d_v.row_chunks(KEYS));
            for (i, (keys, (d_k, d_v))) in chunks(0..key, KEYS).zip(parts).enumerate() {
                tasks[i % tasks.len()].blocks.push(KeyBlock {
                    b,
                    kv,
                    keys,
                    d_k,
                    d_v,
                });
            }
        }
        dealt
    }

    /// From the sums to the gradients of the queries, and of the gain of their norm.
    fn finish_queries(
        &self,
        q: Matrix<'_, E>,
        sums: &Sums<E>,
        d_q: MatrixMut<'_, E>,
        d_gain: Option<&mut [E]>,
    ) {
        let Sizes {
            batch,
            query,
            width,
            ..
        } = self.sizes;
        let blocks = batch * query.div_ceil(ROWS);
        let mut gains = Buffer::zeros(blocks * width);
        let to = parts(d_q, batch, 1).into_iter().enumerate();
        let to = to.flat_map(|(b, d_q)| {
            let rows = chunks(0..query, ROWS).zip(d_q.row_chunks(ROWS));
            rows.map(move |(rows, d_q)| (b, rows, d_q))
        });
        let tasks = to.zip(shares(&mut gains, blocks)).collect();
        self.for_each(tasks, |((b, rows, d_q), d_gain)| {
            for (rows, d_q) in chunks(rows, STRIP).zip(d_q.row_chunks(STRIP)) {
                self.finish_rows(q, sums, b, rows, d_q, d_gain);
            }
        });
        if let Some(d_gain) = d_gain {
            add_up(gains.chunks(width.max(1)), d_gain);
        }
    }

    fn finish_rows(
        &self,
        q: Matrix<'_, E>,
        sums: &Sums<E>,
        b: usize,
        rows: Range<usize>,
        d_q: MatrixMut<'_, E>,
        d_gain: &mut [E],
    ) {
        let mut sum = Panel::new(rows.len(), self.sizes.width);
        for (head, to) in self.sizes.heads_of(b).zip(parts(d_q, 1, self.sizes.heads)) {
            sums.q(head, rows.clone(), sum.write());
            run(BackwardRows {
                prepare: &self.query,
                x: self.sizes.of_query_head(q, head).some_rows(rows.clone()),
                first: rows.start,
                d: sum.read(),
                to,
                d_gain,
            });
        }
    }
}
