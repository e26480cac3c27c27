//! The backward pass.
//!
//! Keys are dealt out to tasks, in blocks, and with them the gradients of keys and values. Queries meet the keys of several
//! tasks, and so the gradient of a query is a sum over tasks.

use super::key_block::KeyBlock;
use super::layout::{parts, shares};
use super::load::BackwardRows;
use super::plan::chunks;
use super::scratch::Panel;
use super::sums::{self, Sums, add_up};
use super::{Attention, Gradients, Sizes};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// Keys of a block: their gradients stay in the second cache while all queries pass by.
const KEYS: usize = 512;

/// As many tasks are worth having: where there are fewer heads, the keys of a head are dealt out to several.
const TASKS: usize = 16;

/// Queries whose gradient is finished by a task.
const QUERIES: usize = 256;

/// What the gradient is computed from.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a, E> {
    pub q: Matrix<'a, E>,
    pub k: Matrix<'a, E>,
    pub v: Matrix<'a, E>,
    pub out: Matrix<'a, E>,
    pub lse: &'a [E],
    pub d_out: Matrix<'a, E>,
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
    #[allow(clippy::too_many_arguments, reason = "the tensors of the forward pass, and one more")]
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
        let saved = Saved { q, k, v, out, lse, d_out };
        let heads = self.sizes.batch * self.sizes.kv_heads;
        let tasks = TASKS.div_ceil(heads.max(1)).min(self.sizes.key.div_ceil(KEYS)).max(1);
        let mut sums = Sums::new(self, tasks, d.bias.is_some());
        let tasks = self.deal_out(tasks, d.k, d.v, &mut sums);
        self.for_each(tasks, |mut task| {
            for block in task.blocks {
                self.backward_block(&saved, block, &mut task.sums);
            }
        });
        self.finish_queries(q, &sums, d.q, d.query_gain);
        d.key_gain.map(|to| sums.key_gain(to));
        d.bias.map(|to| sums.bias(to));
        d.w.map(|to| sums.w(to));
    }

    /// The blocks of every head in turn to each of its tasks: under a causal mask, the first ones have the most queries.
    fn deal_out<'a>(
        &self,
        tasks: usize,
        d_k: MatrixMut<'a, E>,
        d_v: MatrixMut<'a, E>,
        sums: &'a mut Sums<E>,
    ) -> Vec<Task<'a, E>> {
        let Sizes { batch, kv_heads, key, .. } = self.sizes;
        let mut dealt: Vec<_> = sums.parts().map(|sums| Task { blocks: Vec::new(), sums }).collect();
        let heads = parts(d_k, batch, kv_heads).into_iter().zip(parts(d_v, batch, kv_heads));
        for (((b, kv), (d_k, d_v)), tasks) in self.sizes.key_heads().zip(heads).zip(dealt.chunks_mut(tasks)) {
            let parts = d_k.row_chunks(KEYS).into_iter().zip(d_v.row_chunks(KEYS));
            for (i, (keys, (d_k, d_v))) in chunks(0..key, KEYS).zip(parts).enumerate() {
                tasks[i % tasks.len()].blocks.push(KeyBlock { b, kv, keys, d_k, d_v });
            }
        }
        dealt
    }

    /// From the sums to the gradients of the queries, and of the gain of their norm.
    fn finish_queries(&self, q: Matrix<'_, E>, sums: &Sums<E>, d_q: MatrixMut<'_, E>, d_gain: Option<&mut [E]>) {
        let Sizes { batch, heads, query, width, .. } = self.sizes;
        let blocks = query.div_ceil(QUERIES);
        let mut gains = Buffer::zeros(batch * heads * blocks * width);
        let parts = parts(d_q, batch, heads).into_iter().flat_map(|d_q| d_q.row_chunks(QUERIES));
        let queries = self.sizes.query_heads().flat_map(|head| chunks(0..query, QUERIES).map(move |queries| (head, queries)));
        let gain_parts = shares(&mut gains, batch * heads * blocks);
        let tasks = queries.zip(parts.zip(gain_parts)).collect();
        self.for_each(tasks, |((head, queries), (d_q, d_gain))| {
            let mut sum = Panel::new(queries.len(), width);
            sums.q(head, queries.clone(), sum.write());
            run(BackwardRows {
                prepare: &self.query,
                x: self.sizes.of_query_head(q, head).some_rows(queries.clone()),
                first: queries.start,
                d: sum.read(),
                to: d_q,
                d_gain,
            });
        });
        if let Some(d_gain) = d_gain {
            add_up(gains.chunks(width.max(1)), d_gain);
        }
    }
}
