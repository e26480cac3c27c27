//! A state of a scan in a session.

use std::sync::Arc;

use super::{cache::check_memory, decoder::SequenceState, memory::CacheMemory};
use crate::{Element, Error};

/// The value of a state behind the tokens of each sequence.
#[derive(Clone, Debug)]
pub struct StateOfScan<E> {
    /// `[sequences, numbers]`
    values: Vec<E>,
    numbers: usize,
    /// The initial values, where each sequence is given its own.
    given: Arc<[E]>,
    /// Whether a sequence has tokens.
    begun: Vec<bool>,
}

impl<E: Element> StateOfScan<E> {
    /// Sequences without tokens, with so many numbers each.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new<Dev>(sequences: usize, numbers: usize) -> Result<Self, Error<Dev>> {
        check_memory::<E, Dev>(sequences, 1, [numbers, 0])?;
        Ok(Self {
            values: vec![E::zero(); sequences * numbers],
            numbers,
            given: Arc::new([]),
            begun: vec![false; sequences],
        })
    }

    /// Gives each sequence its initial value, `[sequences, numbers]`.
    pub fn starting_from(self, initial: &[E]) -> Self {
        Self {
            given: initial.into(),
            ..self
        }
    }

    fn of(&self, sequence: usize) -> std::ops::Range<usize> {
        sequence * self.numbers..(sequence + 1) * self.numbers
    }

    /// Writes the state of a sequence: at its first token, the initial one.
    pub fn load(&self, sequence: usize, initial: &[E], to: &mut [E]) {
        to.copy_from_slice(match self.begun[sequence] {
            true => &self.values[self.of(sequence)],
            false => initial,
        });
    }

    /// The same, where the initial value is given.
    pub fn load_given(&self, sequence: usize, to: &mut [E]) {
        self.load(sequence, &self.given[self.of(sequence)], to);
    }

    /// Remembers the state of a sequence.
    pub fn store(&mut self, sequence: usize, state: &[E]) {
        let place = self.of(sequence);
        self.values[place].copy_from_slice(state);
        self.begun[sequence] = true;
    }
}

impl<E: Element> SequenceState for StateOfScan<E> {
    fn most_new(&self) -> usize {
        usize::MAX
    }

    fn reset(&mut self, sequence: usize) {
        self.begun[sequence] = false;
    }

    /// The states before are not kept.
    fn shortest(&self, _: usize) -> usize {
        usize::MAX
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    fn copy(&mut self, from: usize, to: usize) {
        let [from_place, place] = [self.of(from), self.of(to)];
        self.values.copy_within(from_place, place.start);
        self.begun[to] = self.begun[from];
    }

    fn memory(&self) -> CacheMemory {
        CacheMemory::of(
            size_of_val(&self.values[..]) + size_of_val(&self.given[..]),
            false,
        )
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        self.numbers * size_of::<E>()
    }

    /// There are no keys and values.
    fn round(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_has_its_own_state() {
        let mut state = StateOfScan::<f32>::new::<()>(2, 1).unwrap();
        let load = |state: &StateOfScan<f32>, sequence| {
            let mut to = [0.0];
            state.load(sequence, &[7.0], &mut to);
            to[0]
        };
        state.store(1, &[2.0]);
        assert_eq!([load(&state, 0), load(&state, 1)], [7.0, 2.0]);
        state.reset(1);
        assert_eq!(load(&state, 1), 7.0);
    }

    #[test]
    fn states_that_do_not_fit_the_memory_are_an_error() {
        // The bytes of the second do not fit `usize`.
        for sequences in [1 << 48, usize::MAX / 8] {
            let refused = StateOfScan::<f32>::new::<()>(sequences, 4);
            assert!(matches!(refused, Err(Error::TooLarge { .. })));
        }
    }
}
