//! The gradients of parameters, summed over all tasks in a fixed order: by sequence, by head, by task.

use super::plan::{QUERIES_PER_TASK, Tile};
use super::{
    Attention, Gradients, PairSink, ScoreGradients, ScoreSums, Similarity, Sizes, SumLens,
};
use crate::kernel::parallel::equal_chunks;
use crate::kernel::{Buffer, MatrixMut, Pooled};
use crate::simd::call;

/// The partial sums of all tasks. Every key head of every sequence has `tasks` of them.
pub(super) struct GradientSums<E: Pooled> {
    sizes: Sizes,
    tasks: usize,
    score: SumLens,
    per_head: Buffer<E>,
    shared: Buffer<E>,
    per_sequence: Buffer<E>,
    w: Buffer<E>,
    key_gain: Buffer<E>,
    query_gain: Buffer<E>,
    sink: Buffer<E>,
    /// The gradients of the matrices that mix heads, `[batch, tasks, 2, heads, heads]`, if heads talk.
    mixing: Buffer<E>,
}

/// The partial sums of a sequence.
pub(super) struct SequenceSums<'a, E> {
    /// The partial sums of the tasks of every key head.
    pub tasks: Vec<TaskSums<'a, E>>,
    /// `[width]` for every chunk of [`QUERIES_PER_TASK`] queries, or nothing if the gradient is not requested.
    pub query_gains: Vec<&'a mut [E]>,
    /// `[heads]`, or nothing if the gradient is not requested.
    pub sink: &'a mut [E],
    /// The gradients of the matrices that mix heads, `[tasks, 2, heads, heads]`, if heads talk.
    pub mixing: &'a mut [E],
}

/// The partial sums of one task.
pub(super) struct TaskSums<'a, E> {
    group: usize,
    /// The gradients of bias terms, `[group, SumLens::per_head]`, or nothing if they are not requested.
    per_head: &'a mut [E],
    /// `[SumLens::shared]`, or nothing if they are not requested.
    shared: &'a mut [E],
    /// `[group, SumLens::per_sequence]`, or nothing if they are not requested.
    per_sequence: &'a mut [E],
    /// The gradients of pairs, if they are requested.
    pairs: Option<&'a dyn PairSink<E>>,
    /// `[group, width]`, or nothing if the similarity has no weights.
    w: &'a mut [E],
    /// `[width]`, or nothing if the gradient is not requested.
    pub key_gain: &'a mut [E],
}

impl<E> TaskSums<'_, E> {
    /// The accumulators for the bias terms of a tile, if one is learned and its gradient is requested.
    pub(super) fn score(&mut self, tile: &Tile) -> Option<ScoreSums<'_, E>> {
        let per_head = of_head(self.per_head, self.group, tile.head.h);
        let per_sequence = of_head(self.per_sequence, self.group, tile.head.h);
        let is_any = !per_head.is_empty()
            || !self.shared.is_empty()
            || !per_sequence.is_empty()
            || self.pairs.is_some();
        is_any.then_some(ScoreSums {
            per_head,
            shared: self.shared,
            per_sequence,
            pairs: self.pairs,
        })
    }

    /// The accumulator for the head of a tile, `[width]`, or nothing.
    pub(super) fn w(&mut self, tile: &Tile) -> &mut [E] {
        of_head(self.w, self.group, tile.head.h)
    }
}

fn of_head<E>(group_sums: &mut [E], group: usize, h: usize) -> &mut [E] {
    let len = group_sums.len() / group;
    &mut group_sums[h % group * len..][..len]
}

impl<E: Pooled> GradientSums<E> {
    /// Accumulators of zeros for the gradients `d`.
    pub(super) fn new(attention: &Attention<'_, E>, tasks: usize, d: &Gradients<'_, E>) -> Self {
        let sizes = attention.sizes;
        let key_heads = tasks * sizes.batch * sizes.kv_heads;
        let heads = key_heads * sizes.group();
        let score = attention.score.filter(|_| d.score.is_some());
        let score = score.map_or(SumLens::default(), |score| score.sums());
        let additive = matches!(attention.similarity, Similarity::Additive { .. });
        let zeros = |is_wanted: bool, len: usize| Buffer::zeros(if is_wanted { len } else { 0 });
        let chunks = sizes.batch * sizes.query.div_ceil(QUERIES_PER_TASK);
        Self {
            sizes,
            tasks,
            score,
            per_head: Buffer::zeros(heads * score.per_head),
            shared: Buffer::zeros(key_heads * score.shared),
            per_sequence: Buffer::zeros(heads * score.per_sequence),
            w: zeros(additive, heads * sizes.width),
            key_gain: zeros(d.key_gain.is_some(), key_heads * sizes.width),
            query_gain: zeros(d.query_gain.is_some(), chunks * sizes.width),
            sink: zeros(d.sink.is_some(), sizes.batch * sizes.heads),
            mixing: zeros(
                attention.talking.is_any(),
                sizes.batch * tasks * 2 * sizes.heads * sizes.heads,
            ),
        }
    }

    /// The partial sums of every sequence, with the gradients of pairs.
    pub(super) fn sequences<'a>(
        &'a mut self,
        pairs: Option<&'a dyn PairSink<E>>,
    ) -> Vec<SequenceSums<'a, E>> {
        let Sizes { batch, query, .. } = self.sizes;
        let group = self.sizes.group();
        let tasks = self.tasks * self.sizes.kv_heads;
        let of_tasks = |sums| equal_chunks(sums, batch * tasks);
        let scores = of_tasks(&mut self.per_head).zip(of_tasks(&mut self.shared));
        let scores = scores.zip(of_tasks(&mut self.per_sequence));
        let others = of_tasks(&mut self.w).zip(of_tasks(&mut self.key_gain));
        let parts = scores.zip(others);
        let mut parts = parts.map(
            |(((per_head, shared), per_sequence), (w, key_gain))| TaskSums {
                group,
                per_head,
                shared,
                per_sequence,
                pairs,
                w,
                key_gain,
            },
        );
        let query_gains = equal_chunks(&mut self.query_gain, batch);
        let sinks = equal_chunks(&mut self.sink, batch);
        let mixing = equal_chunks(&mut self.mixing, batch);
        let sequences = query_gains.zip(sinks).zip(mixing);
        let sequences = sequences.map(|((gains, sink), mixing)| SequenceSums {
            tasks: parts.by_ref().take(tasks).collect(),
            query_gains: equal_chunks(gains, query.div_ceil(QUERIES_PER_TASK)).collect(),
            sink,
            mixing,
        });
        sequences.collect()
    }

    /// Writes the gradients of the parameters: the sums over all tasks.
    pub(super) fn write(&self, d: Gradients<'_, E>) {
        d.query_gain.into_iter().for_each(|to| self.query_gain(to));
        d.key_gain.into_iter().for_each(|to| self.key_gain(to));
        d.score.into_iter().for_each(|to| self.score(to));
        d.w.into_iter().for_each(|to| self.of_heads(&self.w, to));
        d.sink.into_iter().for_each(|to| self.sink(to));
        for (mixed, to) in [d.mix_scores, d.mix_weights].into_iter().enumerate() {
            to.into_iter().for_each(|to| self.mixing(mixed, to));
        }
    }

    /// The gradients of the parameters of the bias terms.
    fn score(&self, to: ScoreGradients<'_, E>) {
        let SumLens {
            per_head,
            shared,
            per_sequence,
            ..
        } = self.score;
        assert_eq!(to.per_head.cols(), per_head, "gradients of every head");
        assert_eq!(to.shared.len(), shared, "gradients of all heads");
        self.of_heads(&self.per_head, to.per_head);
        sum_into(self.shared.chunks(shared.max(1)), to.shared);
        assert_eq!(to.per_sequence.cols(), per_sequence, "gradients of heads");
        self.of_sequences(&self.per_sequence, to.per_sequence);
    }

    /// The gradient of the gain of the keys' norm, `[width]`.
    fn key_gain(&self, to: &mut [E]) {
        sum_into(self.key_gain.chunks(to.len().max(1)), to);
    }

    /// The gradient of the gain of the queries' norm, `[width]`.
    fn query_gain(&self, to: &mut [E]) {
        sum_into(self.query_gain.chunks(to.len().max(1)), to);
    }

    /// The gradient of the sinks, `[heads]`.
    fn sink(&self, to: &mut [E]) {
        sum_into(self.sink.chunks(to.len().max(1)), to);
    }

    /// The gradient of the matrix that mixes scores, which is number 0, or weights: `[heads, heads]`.
    fn mixing(&self, number: usize, mut to: MatrixMut<'_, E>) {
        let heads = self.sizes.heads;
        for g in 0..heads {
            let parts = self.mixing.chunks(2 * heads * heads);
            let row = (number * heads + g) * heads;
            sum_into(parts.map(|part| &part[row..][..heads]), to.row_mut(g));
        }
    }

    /// `to`: `[batch * heads, len]`.
    fn of_sequences(&self, sums: &[E], mut to: MatrixMut<'_, E>) {
        let group = self.sizes.group();
        let len = to.cols();
        for row in 0..to.rows() {
            let first = row / group * self.tasks;
            let parts = (first..first + self.tasks).map(|task| task * group + row % group);
            sum_into(
                parts.map(|part| &sums[part * len..][..len]),
                to.row_mut(row),
            );
        }
    }

    fn of_heads(&self, sums: &[E], mut to: MatrixMut<'_, E>) {
        let group = self.sizes.group();
        let len = to.cols();
        for h in 0..to.rows() {
            // The partial sums of all tasks and sequences, filtered for this head.
            let parts = sums.chunks((group * len).max(1)).enumerate();
            let kv_heads = self.sizes.kv_heads;
            let parts = parts.filter(|(i, _)| i / self.tasks % kv_heads == h / group);
            sum_into(
                parts.map(|(_, part)| &part[h % group * len..][..len]),
                to.row_mut(h),
            );
        }
    }
}

/// `to = Σ parts`, in order.
pub(super) fn sum_into<'a, E: Pooled>(parts: impl Iterator<Item = &'a [E]>, to: &mut [E]) {
    to.fill(E::ZERO);
    for part in parts {
        call::axpy(E::ONE, part, to);
    }
}
