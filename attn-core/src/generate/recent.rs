//! The state of a causal convolution along the tokens in a session: its last inputs.

use super::{
    cache::check_memory,
    decoder::SequenceState,
    memory::CacheMemory,
    tokens::{Capacity, NewTokens},
};
use crate::{
    Element, Error,
    kernel::{Buffer, Matrix, MatrixMut},
    layers::Convolve,
};

/// The last inputs of each sequence of a session, `[sequences, rows, width]`. Before the first token there are zeros, as around the axis of
/// a convolution.
#[derive(Clone, Debug)]
pub struct Recent<E> {
    rows: usize,
    width: usize,
    numbers: Vec<E>,
}

impl<E: Element> Recent<E> {
    /// Nothing was seen yet.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new<Dev>(room: Capacity, rows: usize, width: usize) -> Result<Self, Error<Dev>> {
        check_memory::<E, Dev>(room.sequences, rows, [width, 0])?;
        Ok(Self {
            rows,
            width,
            numbers: vec![E::zero(); room.sequences * rows * width],
        })
    }

    fn of(&mut self, sequence: usize) -> &mut [E] {
        let each = self.rows * self.width;
        &mut self.numbers[sequence * each..][..each]
    }

    /// The convolution of the new tokens, `x` to `y`, each behind the tokens before it.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn convolve(
        &mut self,
        layer: &Convolve<E>,
        new: &NewTokens,
        x: Matrix<'_, E>,
        mut y: MatrixMut<'_, E>,
    ) {
        let width = self.width;
        for span in new.spans() {
            let past = self.of(span.sequence);
            let mut input = Buffer::uninit(past.len() + span.rows.len() * width);
            let (before, rows) = input.split_at_mut(past.len());
            before.copy_from_slice(past);
            let mut rows = MatrixMut::new(rows, span.rows.len(), width);
            rows.copy_from(x.some_rows(span.rows.clone()));
            layer.inside(&input, span.rows.len(), span.of(&mut y).as_mut_slice());
            past.copy_from_slice(&input[span.rows.len() * width..]);
        }
    }
}

impl<E: Element> SequenceState for Recent<E> {
    fn most_new(&self) -> usize {
        usize::MAX
    }

    fn reset(&mut self, sequence: usize) {
        self.of(sequence).fill(E::zero());
    }

    /// The inputs before the last are not kept.
    fn shortest(&self, _: usize) -> usize {
        usize::MAX
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, from: usize, to: usize) {
        let each = self.rows * self.width;
        self.numbers
            .copy_within(from * each..(from + 1) * each, to * each);
    }

    fn memory(&self) -> CacheMemory {
        CacheMemory::of(size_of_val(&self.numbers[..]), false)
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        self.rows * self.width * size_of::<E>()
    }

    /// There are no keys and values.
    fn round(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_do_not_fit_the_memory_are_an_error() {
        // The bytes of the second do not fit `usize`.
        for sequences in [1 << 48, usize::MAX / 8] {
            let room = Capacity {
                sequences,
                capacity: 1,
            };
            let refused = Recent::<f32>::new::<()>(room, 3, 4);
            assert!(matches!(refused, Err(Error::TooLarge { .. })));
        }
    }
}
