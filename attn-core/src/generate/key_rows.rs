//! The values that the body of an attention reads for each key, in a session.

use super::{
    cache::check_memory,
    memory::CacheMemory,
    pages::Pages,
    tokens::{Capacity, Span},
};
use crate::{
    Error,
    kernel::{
        Kernels, Matrix,
        attention::{PAGE_NUMBERS, PagedNumbers},
    },
};

/// The rows of all tokens of the sequences of a session, `[sequences, capacity, width]`: a row is read at the position of its key.
///
/// A body reads single numbers, so the pages that forks share have a number of them each, and a row may stand in two.
#[derive(Clone, Debug)]
pub struct KeyRows<E> {
    numbers: Pages<E>,
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
            numbers: Pages::new(sequences, capacity * width, PAGE_NUMBERS, [1, 1]),
            width,
        })
    }

    /// The memory of the rows, in bytes.
    pub fn memory(&self) -> CacheMemory {
        self.numbers.memory()
    }

    /// The bytes of a sequence of `len` tokens that a fork copies.
    pub fn copied(&self, sequence: usize, len: usize) -> usize {
        self.numbers.copied(sequence, len * self.width)
    }

    /// Makes a sequence a fork of another one.
    pub fn copy(&mut self, from: usize, to: usize) {
        self.numbers.copy(from, to);
    }

    /// Gives up the rows of a sequence that it shares and does not have any more.
    pub fn truncate(&mut self, sequence: usize, len: usize) {
        self.numbers.truncate(sequence, len * self.width);
    }

    /// Remembers the rows of the new tokens of a sequence, which are among those of all new tokens. Returns the rows of all of its tokens,
    /// one after the other.
    ///
    /// # Panics
    /// If there are fewer numbers, or more tokens than the capacity.
    pub fn push(&mut self, span: &Span, new: Matrix<'_, E>) -> PagedNumbers<'_, E> {
        // The matrix has the last axis of the value as its width, and a token perhaps several rows.
        let of_span = span.rows.start * self.width..span.rows.end * self.width;
        let numbers = &new.values()[of_span];
        let first = span.first * self.width;
        let len = first + numbers.len();
        self.numbers
            .write(span.sequence, first..len, |written, _, mut to| {
                to.as_mut_slice().copy_from_slice(&numbers[written]);
            });
        PagedNumbers::new(self.numbers.of_sequence(span.sequence), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attention::KeyNumbers;

    fn span(sequence: usize, rows: std::ops::Range<usize>, first: usize) -> Span {
        Span {
            sequence,
            rows,
            first,
        }
    }

    #[test]
    fn a_sequence_has_the_rows_of_its_tokens() {
        let room = Capacity {
            sequences: 2,
            capacity: 3,
        };
        let mut rows = KeyRows::<f32>::new::<()>(room, 1).expect("there is memory");
        let mut push = |span: Span, new: &[f32]| {
            let len = span.first + span.rows.len();
            let numbers = rows.push(&span, Matrix::new(new, new.len(), 1));
            numbers.row(0, len).expect("it is one page").to_vec()
        };
        let new = [1.0, 2.0, 3.0];
        assert_eq!(push(span(0, 0..2, 0), &new), [1.0, 2.0]);
        assert_eq!(push(span(1, 2..3, 0), &new), [3.0]);
        assert_eq!(push(span(0, 0..1, 2), &[4.0]), [1.0, 2.0, 4.0]);
        // A sequence that begins again.
        assert_eq!(push(span(0, 0..1, 0), &[4.0]), [4.0]);
        assert_eq!(rows.memory(), CacheMemory::of(4 * 6, false));
    }

    /// Rows of five numbers, of which some stand in two pages.
    #[test]
    fn a_fork_copies_the_last_page_alone() {
        let room = Capacity {
            sequences: 1,
            capacity: 3000,
        };
        let (width, tokens) = (5, 2000);
        let row = |token: usize| (0..width).map(move |i| (width * token + i) as f32);
        let all: Vec<f32> = (0..tokens).flat_map(row).collect();
        let mut rows = KeyRows::<f32>::new::<()>(room, width).expect("there is memory");
        for first in (0..tokens).step_by(100) {
            let new = Matrix::new(&all[width * first..][..100 * width], 100, width);
            rows.push(&span(0, 0..100, first), new);
        }
        let mut fork = rows.clone();
        let page = 4 * PAGE_NUMBERS;
        assert_eq!((fork.memory().own, fork.memory().shared), (0, 3 * page));
        let new = [-1.0; 5];
        let of_fork = fork.push(&span(0, 0..1, tokens), Matrix::new(&new, 1, width));
        for (index, number) in all.iter().chain(&new).enumerate() {
            assert_eq!(of_fork.at(index), *number, "{index}");
        }
        let memory = fork.memory();
        assert_eq!((memory.own, memory.shared), (page, 2 * page));
        assert_eq!(memory.capacity, 4 * 3000 * width);
        // Rows that are not there any more are not shared.
        rows.truncate(0, 1);
        assert_eq!(rows.memory().shared, page);
    }
}
