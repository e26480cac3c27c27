//! The new tokens of a session: some tokens of some of its sequences.

use std::ops::Range;

use crate::kernel::{
    Kernels, Matrix, MatrixMut,
    attention::{HeadTransform, Sizes, prepare},
};

/// The size of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// How many sequences there are.
    pub sequences: usize,
    /// The most tokens of each.
    pub capacity: usize,
}

impl Capacity {
    /// The axes batch, query and key of sequences at their longest.
    pub fn axes(self) -> (usize, usize, usize) {
        (self.sequences, self.capacity, self.capacity)
    }
}

/// The tokens of a sequence that are new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which sequence.
    pub sequence: usize,
    /// Their rows among all that is new.
    pub rows: Range<usize>,
    /// The position of the first one in its sequence.
    pub first: usize,
}

impl Span {
    /// Their rows of a matrix, to write.
    pub(super) fn of<'m, E>(&self, matrix: &'m mut MatrixMut<'_, E>) -> MatrixMut<'m, E> {
        let (_, rest) = matrix.reborrow().split_rows(self.rows.start);
        rest.split_rows(self.rows.len()).0
    }
}

/// New tokens of several sequences, one row each, one sequence after the other.
#[derive(Clone, Debug, Default)]
pub struct NewTokens {
    ids: Vec<usize>,
    positions: Vec<usize>,
    spans: Vec<Span>,
}

impl NewTokens {
    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.positions.clear();
        self.spans.clear();
    }

    /// Adds tokens of a sequence, which follow `first` others of it.
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

    /// How many tokens there are.
    #[allow(
        clippy::len_without_is_empty,
        reason = "there is a token, or nothing runs"
    )]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// The tokens.
    pub fn ids(&self) -> &[usize] {
        &self.ids
    }

    /// Where in its sequence each stands.
    pub fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Which sequence each belongs to.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The sizes of an attention over the new tokens alone.
    pub fn sizes(&self, sizes: Sizes) -> Sizes {
        Sizes {
            batch: 1,
            query: self.len(),
            key: self.len(),
            ..sizes
        }
    }

    /// HeadTransforms queries or keys, each by its position: [`prepare`].
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn prepare<E: Kernels>(
        &self,
        how: &HeadTransform<'_, E>,
        heads: usize,
        x: Matrix<'_, E>,
        mut to: MatrixMut<'_, E>,
    ) {
        for span in &self.spans {
            let how = how.from(span.first);
            let len = span.rows.len();
            let x = x.some_rows(span.rows.clone());
            prepare(&how, 1, len, heads, x, span.of(&mut to));
        }
    }
}
