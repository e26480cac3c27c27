//! Small sums that every task has a part in. They are added in a fixed order: by sequence, by head, by task.

use super::layout::shares;
use super::plan::Tile;
use super::queries::ROWS;
use super::{Attention, Similarity, Sizes};
use crate::kernel::{Buffer, MatrixMut, Pooled};
use crate::simd::call;

/// The parts of all tasks. There are `tasks` of them for every key head of every sequence.
pub(super) struct Sums<E: Pooled> {
    sizes: Sizes,
    tasks: usize,
    bias: Buffer<E>,
    w: Buffer<E>,
    key_gain: Buffer<E>,
    query_gain: Buffer<E>,
}

/// The parts of a sequence.
pub(super) struct OfSequence<'a, E> {
    /// For every key head, those of its tasks.
    pub tasks: Vec<Part<'a, E>>,
    /// `[width]` for every chunk of [`ROWS`] queries.
    pub query_gains: Vec<&'a mut [E]>,
}

/// The part of one task.
pub(super) struct Part<'a, E> {
    group: usize,
    /// `[group, query + key - 1]`, or nothing if it is not asked for.
    bias: &'a mut [E],
    /// `[group, width]`, or nothing if the similarity has no weights.
    w: &'a mut [E],
    /// `[width]`
    pub key_gain: &'a mut [E],
}

impl<E> Part<'_, E> {
    /// For the head of a tile, `[query + key - 1]`.
    pub(super) fn bias(&mut self, tile: &Tile) -> Option<&mut [E]> {
        let bias = of_head(self.bias, self.group, tile.head.h);
        (!bias.is_empty()).then_some(bias)
    }

    /// For the head of a tile, `[width]`, or nothing.
    pub(super) fn w(&mut self, tile: &Tile) -> &mut [E] {
        of_head(self.w, self.group, tile.head.h)
    }
}

fn of_head<E>(group_sums: &mut [E], group: usize, h: usize) -> &mut [E] {
    let len = group_sums.len() / group;
    &mut group_sums[h % group * len..][..len]
}

impl<E: Pooled> Sums<E> {
    /// Zeros.
    pub(super) fn new(attention: &Attention<'_, E>, tasks: usize, with_bias: bool) -> Self {
        let sizes = attention.sizes;
        let key_heads = tasks * sizes.batch * sizes.kv_heads;
        let heads = key_heads * sizes.group();
        let distances = (sizes.query + sizes.key).saturating_sub(1);
        let additive = matches!(attention.similarity, Similarity::Additive { .. });
        Self {
            sizes,
            tasks,
            bias: Buffer::zeros(if with_bias { heads * distances } else { 0 }),
            w: Buffer::zeros(if additive { heads * sizes.width } else { 0 }),
            key_gain: Buffer::zeros(key_heads * sizes.width),
            query_gain: Buffer::zeros(sizes.batch * sizes.query.div_ceil(ROWS) * sizes.width),
        }
    }

    /// The parts of every sequence.
    pub(super) fn sequences(&mut self) -> Vec<OfSequence<'_, E>> {
        let Sizes {
            batch, kv_heads, ..
        } = self.sizes;
        let (group, tasks) = (self.sizes.group(), self.tasks * kv_heads);
        let bias = shares(&mut self.bias, batch).into_iter();
        let w = shares(&mut self.w, batch).into_iter();
        let gains = shares(&mut self.key_gain, batch)
            .into_iter()
            .zip(shares(&mut self.query_gain, batch));
        let parts = bias
            .zip(w)
            .zip(gains)
            .map(|((bias, w), (key_gain, query_gain))| {
                let parts = shares(bias, tasks)
                    .into_iter()
                    .zip(shares(w, tasks))
                    .zip(shares(key_gain, tasks));
                OfSequence {
                    tasks: parts
                        .map(|((bias, w), key_gain)| Part {
                            group,
                            bias,
                            w,
                            key_gain,
                        })
                        .collect(),
                    query_gains: shares(query_gain, self.sizes.query.div_ceil(ROWS)),
                }
            });
        parts.collect()
    }

    /// The gradient of the bias, `[heads, query + key - 1]`.
    pub(super) fn bias(&self, to: MatrixMut<'_, E>) {
        self.of_heads(&self.bias, to);
    }

    /// The gradient of the weights of the similarity, `[heads, width]`.
    pub(super) fn w(&self, to: MatrixMut<'_, E>) {
        self.of_heads(&self.w, to);
    }

    /// The gradient of the gain of the keys' norm, `[width]`.
    pub(super) fn key_gain(&self, to: &mut [E]) {
        add_up(self.key_gain.chunks(to.len().max(1)), to);
    }

    /// The gradient of the gain of the queries' norm, `[width]`.
    pub(super) fn query_gain(&self, to: &mut [E]) {
        add_up(self.query_gain.chunks(to.len().max(1)), to);
    }

    fn of_heads(&self, sums: &[E], mut to: MatrixMut<'_, E>) {
        let (group, len) = (self.sizes.group(), to.cols());
        for h in 0..to.rows() {
            // The parts of all tasks of all sequences, and of those that have this head.
            let parts = sums.chunks((group * len).max(1)).enumerate();
            let kv_heads = self.sizes.kv_heads;
            let parts = parts.filter(|(i, _)| i / self.tasks % kv_heads == h / group);
            add_up(
                parts.map(|(_, part)| &part[h % group * len..][..len]),
                to.row_mut(h),
            );
        }
    }
}

/// `to = Σ parts`, one after the other.
pub(super) fn add_up<'a, E: Pooled>(parts: impl Iterator<Item = &'a [E]>, to: &mut [E]) {
    to.fill(E::ZERO);
    for part in parts {
        call::axpy(E::ONE, part, to);
    }
}
