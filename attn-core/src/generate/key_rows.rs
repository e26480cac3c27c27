//! The values that the body of an attention reads for each key, in a session.

use super::{
    cache::{Rows, check_memory},
    tokens::{Capacity, Span},
};
use crate::{
    Error,
    kernel::{Kernels, Matrix},
};

/// The rows of all tokens of the sequences of a session, `[sequences, capacity, width]`: a row is read at the position of its key.
#[derive(Clone, Debug)]
pub struct KeyRows<E> {
    rows: Rows<E>,
    capacity: usize,
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
            rows: Rows::new(sequences * capacity, width),
            capacity,
            width,
        })
    }

    /// The number of elements that are allocated.
    pub fn elements(&self) -> usize {
        self.rows.elements()
    }

    /// Remembers the rows of the new tokens of a sequence, which are among those of all new tokens. Returns the rows of all of its tokens,
    /// one after the other.
    ///
    /// # Panics
    /// If there are fewer numbers, or more tokens than the capacity.
    pub fn push(&mut self, span: &Span, new: Matrix<'_, E>) -> &[E] {
        let start = span.sequence * self.capacity;
        let mut to = self.rows.rows_mut(start + span.first, span.rows.len());
        // The matrix has the last axis of the value as its width, and a token perhaps several rows.
        let of_span = span.rows.start * self.width..span.rows.end * self.width;
        let numbers = new.values()[of_span].chunks(self.width.max(1));
        for (row, numbers) in numbers.enumerate() {
            to.row_mut(row).copy_from_slice(numbers);
        }
        let len = span.first + span.rows.len();
        self.rows.rows(start, len).values()
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
        assert_eq!(rows.elements(), 6);
    }
}
