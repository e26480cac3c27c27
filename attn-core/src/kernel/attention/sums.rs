//! Sums that several tasks have a part in. They are added in the order of the tasks.

use std::ops::Range;

use super::layout::shares;
use super::plan::{Head, Tile};
use super::{Attention, Similarity, Sizes};
use crate::kernel::{Buffer, MatrixMut, Pooled};
use crate::simd::call;

/// The parts of all tasks. There are `tasks` of them for every key head of every sequence.
pub(super) struct Sums<E: Pooled> {
    sizes: Sizes,
    tasks: usize,
    q: Buffer<E>,
    bias: Buffer<E>,
    w: Buffer<E>,
    key_gain: Buffer<E>,
}

/// The part of one task.
pub(super) struct Part<'a, E> {
    /// For the prepared queries, `[group, query, width]`.
    pub q: &'a mut [E],
    /// `[group, query + key - 1]`, or nothing if it is not asked for.
    pub bias: &'a mut [E],
    /// `[group, width]`, or nothing if the similarity has no weights.
    pub w: &'a mut [E],
    /// `[width]`
    pub key_gain: &'a mut [E],
}

/// The part of one task that a tile adds to.
pub(super) struct OfTile<'a, E> {
    /// `[queries, width]`
    pub q: MatrixMut<'a, E>,
    /// `[query + key - 1]`
    pub bias: Option<&'a mut [E]>,
    /// `[width]`, or nothing.
    pub w: &'a mut [E],
}

impl<E: Pooled> Part<'_, E> {
    pub fn of_tile(&mut self, sizes: Sizes, tile: &Tile) -> OfTile<'_, E> {
        let (group, width) = (sizes.group(), sizes.width);
        let of_head = tile.head.h % group;
        let first = (of_head * sizes.query + tile.queries.start) * width;
        let q = &mut self.q[first..][..tile.queries.len() * width];
        let bias = head_of(self.bias, group, of_head);
        OfTile {
            q: MatrixMut::new(q, tile.queries.len(), width),
            bias: (!bias.is_empty()).then_some(bias),
            w: head_of(self.w, group, of_head),
        }
    }
}

/// The part of a head in what a group of heads has.
fn head_of<E>(x: &mut [E], group: usize, head: usize) -> &mut [E] {
    let len = x.len() / group;
    &mut x[head * len..][..len]
}

impl<E: Pooled> Sums<E> {
    /// Zeros.
    pub fn new(attention: &Attention<'_, E>, tasks: usize, with_bias: bool) -> Self {
        let sizes = attention.sizes;
        let key_heads = tasks * sizes.batch * sizes.kv_heads;
        let heads = key_heads * sizes.group();
        let distances = (sizes.query + sizes.key).saturating_sub(1);
        let additive = matches!(attention.similarity, Similarity::Additive { .. });
        Self {
            sizes,
            tasks,
            q: Buffer::zeros(heads * sizes.query * sizes.width),
            bias: Buffer::zeros(if with_bias { heads * distances } else { 0 }),
            w: Buffer::zeros(if additive { heads * sizes.width } else { 0 }),
            key_gain: Buffer::zeros(key_heads * sizes.width),
        }
    }

    /// The part of every task.
    pub fn parts(&mut self) -> impl Iterator<Item = Part<'_, E>> {
        let count = self.tasks * self.sizes.batch * self.sizes.kv_heads;
        let (q, bias) = (shares(&mut self.q, count), shares(&mut self.bias, count));
        let (w, key_gain) = (
            shares(&mut self.w, count),
            shares(&mut self.key_gain, count),
        );
        let parts = q.into_iter().zip(bias).zip(w.into_iter().zip(key_gain));
        parts.map(|((q, bias), (w, key_gain))| Part {
            q,
            bias,
            w,
            key_gain,
        })
    }

    /// The gradient of some of a head's prepared queries, `[queries, width]`.
    pub fn q(&self, head: Head, queries: Range<usize>, mut to: MatrixMut<'_, E>) {
        let width = self.sizes.width;
        for (i, query) in queries.enumerate() {
            let parts = self.of_head(&self.q, head);
            add_up(
                parts.map(|part| &part[query * width..][..width]),
                to.row_mut(i),
            );
        }
    }

    /// The gradient of the bias, `[heads, query + key - 1]`.
    pub fn bias(&self, to: MatrixMut<'_, E>) {
        self.of_heads(&self.bias, to);
    }

    /// The gradient of the weights of the similarity, `[heads, width]`.
    pub fn w(&self, to: MatrixMut<'_, E>) {
        self.of_heads(&self.w, to);
    }

    /// The gradient of the gain of the keys' norm, `[width]`.
    pub fn key_gain(&self, to: &mut [E]) {
        add_up(self.key_gain.chunks(to.len().max(1)), to);
    }

    fn of_heads(&self, sums: &[E], mut to: MatrixMut<'_, E>) {
        for h in 0..to.rows() {
            let heads = self.sizes.query_heads().filter(|head| head.h == h);
            add_up(
                heads.flat_map(|head| self.of_head(sums, head)),
                to.row_mut(h),
            );
        }
    }

    /// What the tasks have for a query head.
    fn of_head<'a>(&self, sums: &'a [E], head: Head) -> impl Iterator<Item = &'a [E]> {
        let group = self.sizes.group();
        let len = sums.len() / (self.sizes.batch * self.tasks * self.sizes.heads);
        let first = (head.b * self.sizes.kv_heads + head.kv) * self.tasks;
        let parts = first..first + self.tasks;
        parts.map(move |part| &sums[(part * group + head.h % group) * len..][..len])
    }
}

/// `to = Σ parts`, one after the other.
pub(super) fn add_up<'a, E: Pooled>(parts: impl Iterator<Item = &'a [E]>, to: &mut [E]) {
    to.fill(E::ZERO);
    for part in parts {
        call::axpy(E::ONE, part, to);
    }
}
