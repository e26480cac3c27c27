//! The values that the body of an attention reads for each key, in a session.

use super::{
    cache::check_memory,
    memory::CacheMemory,
    pages::Pages,
    tokens::{Capacity, Span},
};
use crate::{
    Error,
    kernel::{Kernels, Matrix},
};

/// The rows of all tokens of the sequences of a session, `[sequences, capacity, width]`: a row is read at the position of its key.
///
/// A body reads those of a sequence as one slice, so they are one page, which forks share until one of them writes.
#[derive(Clone, Debug)]
pub struct KeyRows<E> {
    rows: Pages<E>,
    width: usize,
}

impl<E: Kernels> KeyRows<E> {
    /// Sequences without tokens.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new<Dev>(room: Capacity, width: usize) -> Result<Self, Error<Dev>> {
        let Capacity {
            sequences,
            capacity,
        } = room;
        check_memory::<E, Dev>(sequences, capacity, [width, 0])?;
        Ok(Self {
            rows: Pages::new(sequences, capacity, capacity, width),
            width,
        })
    }

    /// The memory of the rows, in bytes.
    pub fn memory(&self) -> CacheMemory {
        self.rows.memory()
    }

    /// Makes a sequence a fork of another one.
    pub fn copy(&mut self, from: usize, to: usize) {
        self.rows.copy(from, to);
    }

    /// Gives up the rows of a sequence that it shares and does not have any more.
    pub fn truncate(&mut self, sequence: usize, len: usize) {
        self.rows.truncate(sequence, len);
    }

    /// Remembers the rows of the new tokens of a sequence, which are among those of all new tokens. Returns the rows of all of its tokens,
    /// one after the other.
    ///
    /// # Panics
    /// If there are fewer numbers, or more tokens than the capacity.
    pub fn push(&mut self, span: &Span, new: Matrix<'_, E>) -> &[E] {
        // The matrix has the last axis of the value as its width, and a token perhaps several rows.
        let of_span = span.rows.start * self.width..span.rows.end * self.width;
        let numbers = &new.values()[of_span];
        let len = span.first + span.rows.len();
        self.rows
            .write(span.sequence, span.first..len, |_, mut to| {
                to.as_mut_slice().copy_from_slice(numbers);
            });
        self.rows.read_page(span.sequence, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_the_rows_of_its_tokens() {
        let room = Capacity {
            sequences: 2,
            capacity: 3,
        };
        let mut rows = KeyRows::<f32>::new::<()>(room, 1).expect("there is memory");
        let span = |sequence, rows, first| Span {
            sequence,
            rows,
            first,
        };
        let new = Matrix::new(&[1.0, 2.0, 3.0], 3, 1);
        assert_eq!(rows.push(&span(0, 0..2, 0), new), [1.0, 2.0]);
        assert_eq!(rows.push(&span(1, 2..3, 0), new), [3.0]);
        let next = Matrix::new(&[4.0], 1, 1);
        assert_eq!(rows.push(&span(0, 0..1, 2), next), [1.0, 2.0, 4.0]);
        // A sequence that begins again.
        assert_eq!(rows.push(&span(0, 0..1, 0), next), [4.0]);
        assert_eq!(rows.memory(), CacheMemory::of(4 * 6, false));
    }
}
