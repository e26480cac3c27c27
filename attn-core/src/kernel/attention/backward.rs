//! The backward pass.
//!
//! The blocks of keys of a head are distributed to tasks. A task owns the gradients of its keys and values. A query reads the
//! keys of several tasks, so its gradient is a sum over tasks.

use std::mem;

use super::head_major::HeadMajor;
use super::heads::{Heads, row_chunks, some_rows_of};
use super::key_block::KeyBlock;
use super::load::BackwardHeads;
use super::paged::KeySource;
use super::plan::{Head, QUERIES_PER_TASK, chunks};
use super::queries::{Inputs, Queries, QueryGradients, Saved, TaskQueryGradients};
use super::sums::{GradientSums, SequenceSums, TaskSums};
use super::weight_rows::MaskedDots;
use super::{Attention, Gradients, Normalizer, OutputGradients, PairGradients, PairSink, Sizes};
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::run;

/// The maximum number of keys of a block: their gradients stay in the second-level cache while all queries are processed.
const MAX_KEYS: usize = 512;

/// The minimum number of keys of a block, for products of sufficient size.
const MIN_KEYS: usize = 128;

/// The number of tasks that is worth having. Where there are fewer key heads, the keys of a head are dealt out to several tasks.
const TASKS: usize = 8;

/// The gradient of a sequence, with a matrix for every head.
pub(super) struct Gradient<'a, E> {
    pub q: Vec<MatrixMut<'a, E>>,
    pub k: Vec<MatrixMut<'a, E>>,
    pub v: Vec<MatrixMut<'a, E>>,
    pub sums: SequenceSums<'a, E>,
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
        q: Heads<Matrix<'_, E>>,
        k: Heads<Matrix<'_, E>>,
        v: Heads<Matrix<'_, E>>,
        out: Heads<Matrix<'_, E>>,
        lse: &[E],
        d_out: OutputGradients<'_, E>,
        d: Gradients<'_, E>,
    ) {
        self.check_backward([q, k, v], out, lse, &d_out);
        // Where heads talk, a block of queries has all of its weights.
        let centres = self.normalizer.sparse();
        let centres = centres.filter(|_| !self.talking.is_any());
        let centres = centres.map(|sparse| self.centres(sparse, [q, k, v], lse, out, &d_out));
        let (out, shares) = match &centres {
            None => (out, None),
            Some((centres, shares)) => {
                let matrix = Matrix::new(centres, out.matrix.rows(), out.matrix.cols());
                (Heads { matrix, ..out }, shares.as_deref())
            }
        };
        let of_softmax = self.shares(&d_out);
        let inputs = Inputs {
            q,
            k,
            v,
            out,
            lse,
            d_out,
            shares: shares.or(of_softmax.as_deref()),
        };
        self.backward_sequences(&inputs, d);
    }

    /// The gradients of all sequences, and of the parameters.
    fn backward_sequences(&self, inputs: &Inputs<'_, E>, mut d: Gradients<'_, E>) {
        let sizes = self.sizes;
        let talks = self.talking.is_any();
        let tasks = match talks {
            true => self.tasks_of_heads(),
            false => self.division().0,
        };
        let mut sums = GradientSums::new(self, tasks, &d);
        let pairs = d.score.as_mut().map(|score| mem::take(&mut score.pairs));
        let pairs = pairs.filter(|pairs| !pairs.is_empty());
        let pairs = pairs.map(|pairs| PairGradients::new(pairs, sizes));
        let sink = pairs.as_ref().map(|pairs| pairs as &dyn PairSink<E>);
        let vectors = [
            (&mut d.q, inputs.q),
            (&mut d.k, inputs.k),
            (&mut d.v, inputs.v),
        ];
        let vectors = vectors.map(|(d, Heads { layout, .. })| Heads {
            matrix: d.reborrow(),
            layout,
        });
        let gradients = self.gradients(vectors, sums.sequences(sink)).enumerate();
        self.for_each(sizes.batch * sizes.kv_heads, gradients, |(b, gradient)| {
            let saved = inputs.of_sequence(sizes, b);
            let of_sequence = self.of_sequence(b);
            match talks {
                true => of_sequence.backward_talking(&saved, gradient),
                false => of_sequence.backward_sequence(&saved, gradient),
            }
        });
        sums.write(d);
    }

    /// Panics if the arguments do not fit the sizes.
    #[track_caller]
    fn check_backward(
        &self,
        [q, k, v]: [Heads<Matrix<'_, E>>; 3],
        out: Heads<Matrix<'_, E>>,
        lse: &[E],
        d: &OutputGradients<'_, E>,
    ) {
        let shape = |x: Heads<Matrix<'_, E>>| (x.layout, (x.matrix.rows(), x.matrix.cols()));
        let [weights, d_weights] = [
            d.weights.map(|of| of.weights.len()),
            d.weights.map(|of| of.d.len()),
        ];
        let keys = [k, v].map(KeySource::from);
        self.check(q, keys, shape(out), Some(lse.len()), weights);
        self.check(q, keys, shape(d.out), d.lse.map(<[E]>::len), d_weights);
    }

    /// The gradients of every sequence.
    fn gradients<'a>(
        &self,
        [q, k, v]: [Heads<MatrixMut<'a, E>>; 3],
        sums: Vec<SequenceSums<'a, E>>,
    ) -> impl Iterator<Item = Gradient<'a, E>> {
        let Sizes {
            batch,
            heads,
            kv_heads,
            ..
        } = self.sizes;
        let mut q = q.split([batch, heads]);
        let [mut k, mut v] = [k, v].map(|d| d.split([batch, kv_heads]));
        sums.into_iter().map(move |sums| Gradient {
            q: q.by_ref().take(heads).collect(),
            k: k.by_ref().take(kv_heads).collect(),
            v: v.by_ref().take(kv_heads).collect(),
            sums,
        })
    }

    /// The part of `δ` that comes from the gradients of weights and `lse`, if the normalizer is a softmax, `[batch, heads, query]`:
    ///
    /// ```text
    /// ds = p (dp + dw - Σ p (dp + dw)) + p dlse = p (dp + dw - (δ + Σ p dw - dlse))
    /// ```
    ///
    /// With dropout, `Σ p dw` is a sum over the weights that were kept, as `dw` is the gradient of these.
    fn shares(&self, d: &OutputGradients<'_, E>) -> Option<Buffer<E>> {
        let has_none = d.weights.is_none() && d.lse.is_none() || self.talking.is_any();
        let is_softmax =
            self.normalizer.sparse().is_none() && self.normalizer != Normalizer::Identity;
        if has_none || !is_softmax {
            return None;
        }
        let Sizes {
            batch,
            heads,
            query,
            ..
        } = self.sizes;
        let mut shares = Buffer::zeros(batch * heads * query);
        let of_heads = equal_chunks(&mut shares, batch * heads).enumerate();
        let tasks = of_heads.flat_map(|(i, shares)| {
            let chunks =
                chunks(0..query, QUERIES_PER_TASK).zip(shares.chunks_mut(QUERIES_PER_TASK));
            let head = Head {
                b: i / heads,
                h: i % heads,
            };
            chunks.map(move |(queries, to)| (head, queries, to))
        });
        self.for_each(batch * self.sizes.kv_heads, tasks, |(head, queries, to)| {
            if let Some(of) = d.weights {
                run(MaskedDots {
                    factors: self.pairs(of.weights, head, &queries),
                    d: self.pairs(of.d, head, &queries),
                    to: &mut *to,
                });
            }
            if let Some(d_lse) = d.lse {
                let d_lse = self.rows(d_lse, head, &queries);
                to.iter_mut().zip(d_lse).for_each(|(to, d)| *to -= *d);
            }
        });
        Some(shares)
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

    fn backward_sequence(&self, saved: &Saved<'_, E>, d: Gradient<'_, E>) {
        let queries = Queries::load(self, saved);
        if let Normalizer::Sink(sink) = self.normalizer
            && !d.sums.sink.is_empty()
        {
            queries.sink_gradients(sink, d.sums.sink);
        }
        let (tasks, _) = self.division();
        let mut d_q = d.q;
        // The gradients are summed where they stand, if a task has all keys and there is no transform to derive.
        let mut sums = None;
        let parts: Vec<_> = match tasks == 1 && self.query.is_shift() {
            true => {
                let heads = mem::take(&mut d_q).into_iter();
                TaskQueryGradients::of_tasks(self.sizes, heads).collect()
            }
            false => {
                let sums = sums.insert(QueryGradients::new(self.sizes, tasks));
                sums.parts().collect()
            }
        };
        let tasks = parts.into_iter().zip(d.sums.tasks);
        let tasks = tasks.map(|(d_q, sums)| Task {
            blocks: Vec::new(),
            d_q,
            sums,
        });
        let mut tasks: Vec<_> = tasks.collect();
        self.split_tasks(saved, (d.k, d.v), &mut tasks);
        self.for_each(self.sizes.kv_heads, tasks, |mut task| {
            for block in task.blocks {
                self.backward_block(&queries, block, &mut task.d_q, &mut task.sums);
            }
            task.d_q.finish(self.rounded_scale().unwrap_or(E::ONE));
        });
        if let Some(sums) = &sums {
            self.finish_queries(&saved.q, sums, d_q, d.sums.query_gains);
        }
    }

    /// Distributes the blocks of every head to its tasks, back and forth: under a causal mask, an early block has more queries
    /// than a late one.
    fn split_tasks<'a>(
        &self,
        saved: &Saved<'a, E>,
        (d_k, d_v): (Vec<MatrixMut<'a, E>>, Vec<MatrixMut<'a, E>>),
        tasks: &mut [Task<'a, E>],
    ) {
        let sizes = self.sizes;
        let (count, keys) = self.division();
        let heads = d_k.into_iter().zip(d_v).enumerate();
        for ((kv, (d_k, d_v)), tasks) in heads.zip(tasks.chunks_mut(count)) {
            let [k, v] = [saved.k[kv], saved.v[kv]];
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
        q: &[Matrix<'_, E>],
        sums: &QueryGradients<E>,
        d_q: Vec<MatrixMut<'_, E>>,
        d_gains: Vec<&mut [E]>,
    ) {
        let Sizes {
            heads,
            query,
            width,
            ..
        } = self.sizes;
        let tasks =
            chunks(0..query, QUERIES_PER_TASK).zip(row_chunks(d_q, QUERIES_PER_TASK).zip(d_gains));
        self.for_each(self.sizes.kv_heads, tasks, |(range, (to, d_gain))| {
            run(BackwardHeads {
                transform: &self.query,
                x: some_rows_of(q, &range),
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
