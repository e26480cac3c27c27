//! Keys or values that a session keeps: numbers of the model, or rounded to bf16.

use std::ops::Range;

use super::{memory::CacheMemory, pages::Pages};
use crate::kernel::{
    Buffer, Kernels, Matrix, MatrixMut,
    attention::{HeadTransform, PagedRows, one_head_transform},
};

/// `[sequences, rows, heads, width]`
#[derive(Clone, Debug)]
pub(super) enum CachedRows<E> {
    Model(Pages<E>),
    Bf16(Pages<u16>),
}

/// `match`es both types of pages.
macro_rules! of_pages {
    ($rows:expr, $pages:ident => $body:expr) => {
        match $rows {
            CachedRows::Model($pages) => $body,
            CachedRows::Bf16($pages) => $body,
        }
    };
}

impl<E: Kernels> CachedRows<E> {
    /// The first `len` rows of a sequence.
    pub(super) fn read(&self, sequence: usize, len: usize) -> PagedRows<'_, E> {
        match self {
            Self::Model(pages) => PagedRows::Model(pages.read(sequence, len)),
            Self::Bf16(pages) => PagedRows::Bf16(pages.read(sequence, len)),
        }
    }

    /// [`Pages::write`] of numbers of the model, which are rounded.
    fn write(
        &mut self,
        sequence: usize,
        rows: Range<usize>,
        body: impl Fn(Range<usize>, usize, MatrixMut<'_, E>) + Send + Sync,
    ) {
        match self {
            Self::Model(pages) => pages.write(sequence, rows, body),
            Self::Bf16(pages) => pages.write(sequence, rows, |some, head, to| {
                let (rows, width) = (to.rows(), to.cols());
                let mut numbers = Buffer::uninit(rows * width);
                let mut numbers = MatrixMut::new(&mut numbers, rows, width);
                body(some, head, numbers.reborrow());
                E::round_rows(numbers.as_ref(), to);
            }),
        }
    }

    /// Writes vectors, `[rows, heads * width]`, after their transform. The first one has the position `first`.
    pub(super) fn write_vectors(
        &mut self,
        sequence: usize,
        rows: Range<usize>,
        transform: &HeadTransform<'_, E>,
        first: usize,
        x: Matrix<'_, E>,
    ) {
        self.write(sequence, rows, |some, head, to| {
            let transform = transform.from(first + some.start);
            one_head_transform(&transform, head, x.some_rows(some), to);
        });
    }

    pub(super) fn shift(&mut self, sequence: usize, rows: Range<usize>, to: usize) {
        of_pages!(self, pages => pages.shift(sequence, rows, to));
    }

    pub(super) fn truncate(&mut self, sequence: usize, len: usize) {
        of_pages!(self, pages => pages.truncate(sequence, len));
    }

    pub(super) fn copy(&mut self, from: usize, to: usize) {
        of_pages!(self, pages => pages.copy(from, to));
    }

    /// Bytes.
    pub(super) fn memory(&self) -> CacheMemory {
        of_pages!(self, pages => pages.memory())
    }

    /// [`Pages::copied`]
    pub(super) fn copied(&self, sequence: usize, len: usize) -> usize {
        of_pages!(self, pages => pages.copied(sequence, len))
    }

    /// Rounds the rows to come. There are none.
    pub(super) fn round(&mut self) {
        if let Self::Model(pages) = self {
            *self = Self::Bf16(pages.emptied());
        }
    }

    /// A copy of `len` rows of each sequence, rounded.
    pub(super) fn rounded(&self, sequences: usize, len: usize) -> Self {
        let pages = match self {
            Self::Bf16(_) => return self.clone(),
            Self::Model(pages) => pages,
        };
        let mut rounded = pages.emptied();
        for sequence in 0..sequences {
            let rows = pages.read(sequence, len);
            rounded.write(sequence, 0..len, |some, head, to| {
                E::round_rows(rows.head(head).in_page(some), to);
            });
        }
        Self::Bf16(rounded)
    }
}
