//! The new tokens of some sequences of a session.

use std::ops::Range;

use crate::kernel::{
    Kernels, Matrix, MatrixMut,
    attention::{HeadTransform, Sizes, head_transform},
};

/// The size of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The number of sequences.
    pub sequences: usize,
    /// The maximum number of tokens of each.
    pub capacity: usize,
}

impl Capacity {
    /// The axes batch, query and key of sequences of maximum length.
    pub fn axes(self) -> (usize, usize, usize) {
        (self.sequences, self.capacity, self.capacity)
    }
}

/// The new tokens of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the sequence.
    pub sequence: usize,
    /// Their rows among all new tokens.
    pub rows: Range<usize>,
    /// The position of the first one in its sequence.
    pub first: usize,
}

impl Span {
    /// The difference of a row and the position of its token.
    pub fn row_of_first_position(&self) -> i64 {
        self.rows.start as i64 - self.first as i64
    }

    /// Writes numbers of each head, `[heads, tokens]`, where those of all new tokens are.
    pub(super) fn write_heads<E: Copy>(&self, numbers: &[E], all: &mut [E]) {
        let len = self.rows.len();
        let heads = numbers.len() / len.max(1);
        let new = all.len() / heads.max(1);
        let rows = numbers.chunks(len.max(1)).zip(all.chunks_mut(new.max(1)));
        rows.for_each(|(from, to)| to[self.rows.clone()].copy_from_slice(from));
    }

    /// Their rows of a matrix, mutable.
    pub(super) fn of<'m, E>(&self, matrix: &'m mut MatrixMut<'_, E>) -> MatrixMut<'m, E> {
        let (_, rest) = matrix.reborrow().split_rows(self.rows.start);
        rest.split_rows(self.rows.len()).0
    }
}

/// New tokens of several sequences, one row each, sorted by sequence.
#[derive(Clone, Debug, Default)]
pub struct NewTokens {
    ids: Vec<usize>,
    positions: Vec<usize>,
    spans: Vec<Span>,
    /// The maximum number of tokens of a sequence.
    capacity: usize,
    /// The token of a step, in place of these: it takes no memory from the allocator.
    step: Option<Step>,
}

/// A token alone.
#[derive(Clone, Debug)]
struct Step {
    id: [usize; 1],
    position: [usize; 1],
    span: [Span; 1],
}

impl NewTokens {
    /// None yet, of a session of this capacity.
    pub(super) fn none(room: Capacity) -> Self {
        Self {
            capacity: room.capacity,
            ..Self::default()
        }
    }

    /// The token at a step of a scan, where it is a sequence of length 1.
    pub fn step(sequence: usize, id: usize) -> Self {
        let span = Span {
            sequence,
            rows: 0..1,
            first: 0,
        };
        let step = Step {
            id: [id],
            position: [0],
            span: [span],
        };
        Self {
            step: Some(step),
            capacity: 1,
            ..Self::default()
        }
    }

    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.spans.clear();
    }

    /// Adds tokens of a sequence that already has `first` tokens.
    pub(super) fn push(&mut self, sequence: usize, first: usize, tokens: &[usize]) {
        let start = self.ids.len();
        self.ids.extend(tokens);
        self.positions.extend(first..first + tokens.len());
        let rows = start..self.ids.len();
        self.spans.push(Span {
            sequence,
            rows,
            first,
        });
    }

    /// The number of tokens.
    #[allow(
        clippy::len_without_is_empty,
        reason = "there is a token, or nothing runs"
    )]
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// The tokens.
    pub fn ids(&self) -> &[usize] {
        self.step.as_ref().map_or(&self.ids, |step| &step.id)
    }

    /// The position of each token in its sequence.
    pub fn positions(&self) -> &[usize] {
        let step = self.step.as_ref();
        step.map_or(&self.positions, |step| &step.position)
    }

    /// The maximum number of tokens of a sequence.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The tokens of each sequence.
    pub fn spans(&self) -> &[Span] {
        self.step.as_ref().map_or(&self.spans, |step| &step.span)
    }

    /// The sizes of an attention over the new tokens only.
    pub fn sizes(&self, sizes: Sizes) -> Sizes {
        Sizes {
            batch: 1,
            query: self.len(),
            key: self.len(),
            ..sizes
        }
    }

    /// Transforms queries or keys, each by its position: [`head_transform`].
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn head_transform<E: Kernels>(
        &self,
        transform: &HeadTransform<'_, E>,
        heads: usize,
        x: Matrix<'_, E>,
        mut to: MatrixMut<'_, E>,
    ) {
        for span in self.spans() {
            let transform = transform.from(span.first);
            let len = span.rows.len();
            let x = x.some_rows(span.rows.clone());
            head_transform(&transform, 1, len, heads, x, span.of(&mut to));
        }
    }
}
