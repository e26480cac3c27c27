//! The backward pass.
//!
//! The blocks of keys of a head are distributed to tasks. A task owns the gradients of its keys and values. A query reads the
//! keys of several tasks, so its gradient is a sum over tasks.

use super::head_major::HeadMajor;
use super::key_block::KeyBlock;
use super::layout::parts;
use super::load::BackwardHeads;
use super::plan::{QUERIES_PER_TASK, chunks};
use super::queries::{Queries, QueryGradients, TaskQueryGradients};
use super::sums::{GradientSums, SequenceSums, TaskSums};
use super::{Attention, Gradients, Normalizer, Sizes};
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// The maximum number of keys of a block: their gradients stay in the second-level cache while all queries are processed.
const MAX_KEYS: usize = 512;

/// The minimum number of keys of a block, for products of sufficient size.
const MIN_KEYS: usize = 128;

/// The number of tasks that is worth having. Where there are fewer key heads, the keys of a head are dealt out to several tasks.
const TASKS: usize = 8;

/// The inputs of the backward pass of a sequence, as in [`Attention::backward`].
struct Saved<'a, E> {
    b: usize,
    q: Matrix<'a, E>,
    k: Matrix<'a, E>,
    v: Matrix<'a, E>,
    /// The output, or the centres of a sparse normalizer, which take its place in `δ`.
    out: Matrix<'a, E>,
    lse: &'a [E],
    d_out: Matrix<'a, E>,
}

/// The gradient of a sequence.
struct Gradient<'a, E> {
    q: MatrixMut<'a, E>,
    k: MatrixMut<'a, E>,
    v: MatrixMut<'a, E>,
    sums: SequenceSums<'a, E>,
}

/// Some blocks of keys of a head, and their sums.
struct Task<'a, E> {
    blocks: Vec<KeyBlock<'a, E>>,
    d_q: TaskQueryGradients<'a, E>,
    sums: TaskSums<'a, E>,
}

impl<E: Pooled> Attention<'_, E> {
    /// [`backward`](Self::backward), compiled at the call.
    #[allow(clippy::too_many_arguments, reason = "those of `backward`")]
    pub(super) fn backward_impl(
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
        let sizes = self.sizes;
        let batch = self.sizes.batch;
        let centres = self.normalizer.sparse();
        let centres = centres.map(|sparse| self.centres(sparse, [q, k, v], lse));
        let out = centres
            .as_ref()
            .map_or(out, |centres| Matrix::new(centres, out.rows(), out.cols()));
        let mut sums = GradientSums::new(self, self.division().0, d.score.is_some());
        let [d_q, d_k, d_v] = [d.q, d.k, d.v].map(|d| parts(d, batch, 1));
        let gradients = d_q.zip(d_k).zip(d_v.zip(sums.sequences()));
        let gradients = gradients.map(|((q, k), (v, sums))| Gradient { q, k, v, sums });
        let tasks = gradients.enumerate();
        self.for_each(batch * sizes.kv_heads, tasks, |(b, gradient)| {
            let of = |x| sizes.sequence(x, b);
            let rows = sizes.heads * sizes.query;
            let saved = Saved {
                b,
                q: of(q),
                k: of(k),
                v: of(v),
                out: of(out),
                lse: &lse[b * rows..][..rows],
                d_out: of(d_out),
            };
            self.of_sequence(b).backward_sequence(saved, gradient);
        });
        d.query_gain.into_iter().for_each(|to| sums.query_gain(to));
        d.key_gain.into_iter().for_each(|to| sums.key_gain(to));
        d.score.into_iter().for_each(|to| sums.score(to));
        d.w.into_iter().for_each(|to| sums.w(to));
        d.sink.into_iter().for_each(|to| sums.sink(to));
    }

    /// The number of tasks per key head and sequence, and the number of keys per block.
    fn division(&self) -> (usize, usize) {
        let Sizes {
            batch,
            kv_heads,
            key,
            ..
        } = self.sizes;
        let tasks = TASKS.div_ceil((batch * kv_heads).max(1));
        let keys = match tasks {
            1 => MAX_KEYS,
            // Two blocks for every task.
            _ => key.div_ceil(2 * tasks).next_multiple_of(MIN_KEYS),
        };
        let keys = keys.clamp(MIN_KEYS, MAX_KEYS);
        (tasks.min(key.div_ceil(keys)).max(1), keys)
    }

    fn backward_sequence(&self, saved: Saved<'_, E>, d: Gradient<'_, E>) {
        let queries = Queries::load(self, saved.q, saved.out, saved.d_out, saved.lse);
        if let Normalizer::Sink(sink) = self.normalizer {
            queries.sink_gradients(sink, d.sums.sink);
        }
        let mut d_q = QueryGradients::new(self.sizes, self.division().0);
        let tasks = d_q.parts().zip(d.sums.tasks).map(|(d_q, sums)| Task {
            blocks: Vec::new(),
            d_q,
            sums,
        });
        let mut tasks: Vec<_> = tasks.collect();
        self.split_tasks(&saved, (d.k, d.v), &mut tasks);
        self.for_each(self.sizes.kv_heads, tasks, |mut task| {
            for block in task.blocks {
                self.backward_block(&queries, block, &mut task.d_q, &mut task.sums);
            }
            task.d_q.finish();
        });
        self.finish_queries(saved.q, &d_q, d.q, d.sums.query_gains);
    }

    /// Distributes the blocks of every head to its tasks, back and forth: under a causal mask, an early block has more queries
    /// than a late one.
    fn split_tasks<'a>(
        &self,
        saved: &Saved<'a, E>,
        (d_k, d_v): (MatrixMut<'a, E>, MatrixMut<'a, E>),
        tasks: &mut [Task<'a, E>],
    ) {
        let sizes = self.sizes;
        let (count, keys) = self.division();
        let heads = parts(d_k, 1, sizes.kv_heads);
        let heads = heads.zip(parts(d_v, 1, sizes.kv_heads)).enumerate();
        for ((kv, (d_k, d_v)), tasks) in heads.zip(tasks.chunks_mut(count)) {
            let [k, v] = [saved.k, saved.v].map(|x| sizes.of_key_head(x, kv));
            let d = d_k.row_chunks(keys).zip(d_v.row_chunks(keys));
            let turns = (0..count).chain((0..count).rev()).cycle();
            for ((range, (d_k, d_v)), task) in chunks(0..sizes.key, keys).zip(d).zip(turns) {
                tasks[task].blocks.push(KeyBlock {
                    b: saved.b,
                    kv,
                    k: k.some_rows(range.clone()),
                    v: v.some_rows(range.clone()),
                    range,
                    d_k,
                    d_v,
                });
            }
        }
    }

    /// Computes the gradient of the queries, and of the gain of their norm, from the sums.
    fn finish_queries(
        &self,
        q: Matrix<'_, E>,
        sums: &QueryGradients<E>,
        d_q: MatrixMut<'_, E>,
        d_gains: Vec<&mut [E]>,
    ) {
        let Sizes {
            heads,
            query,
            width,
            ..
        } = self.sizes;
        let tasks =
            chunks(0..query, QUERIES_PER_TASK).zip(d_q.row_chunks(QUERIES_PER_TASK).zip(d_gains));
        self.for_each(self.sizes.kv_heads, tasks, |(range, (to, d_gain))| {
            run(BackwardHeads {
                transform: &self.query,
                x: q.some_rows(range.clone()),
                first: range.start,
                d: sums.rows(
                    range.clone(),
                    &mut HeadMajor::uninit(heads, range.len(), width),
                ),
                to,
                d_gain,
            });
        });
    }
}
