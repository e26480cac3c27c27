//! The state of an attention in a session.

use std::sync::Arc;

use super::{
    cache::Cache,
    decoder::SequenceState,
    key_rows::KeyRows,
    memory::CacheMemory,
    tokens::{Capacity, NewTokens},
};
use crate::{
    Element, Error,
    kernel::{Kernels, Matrix, MatrixMut},
    model::FusedLayer,
};

/// A layer of `attention!` in a model with sessions.
pub trait Decode<E: Element, const INPUTS: usize>: FusedLayer<E> {
    /// The state of the layer: its cached keys and values.
    type DecodeState: SequenceState + Clone;

    /// The empty state.
    ///
    /// # Errors
    /// If the maximum length is too long for the layer.
    fn past<Dev>(weights: &Self::Weights, room: Capacity) -> Result<Self::DecodeState, Error<Dev>>;

    /// Computes the output for the new tokens, and the logarithms of the sums, `[heads, tokens]`. It caches their keys and values.
    fn decode(
        weights: &Self::Weights,
        past: &mut Self::DecodeState,
        new: &NewTokens,
        inputs: [Matrix<'_, E>; INPUTS],
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    );
}

/// The cache of an attention, and its call for the maximum length. Its body reads so many values that have a row for each key.
pub struct DecodeState<C, E, const READ: usize> {
    /// Shared by all forks.
    pub call: Arc<C>,
    /// The keys and values.
    pub cache: Cache<E>,
    /// The values that the body reads.
    pub of_keys: [KeyRows<E>; READ],
}

impl<C, E: Kernels, const READ: usize> Clone for DecodeState<C, E, READ> {
    fn clone(&self) -> Self {
        Self {
            call: self.call.clone(),
            cache: self.cache.clone(),
            of_keys: self.of_keys.clone(),
        }
    }
}

impl<C, E: Kernels, const READ: usize> SequenceState for DecodeState<C, E, READ> {
    fn most_new(&self) -> usize {
        self.cache.most_new()
    }

    fn reset(&mut self, sequence: usize) {
        self.cache.reset(sequence);
        for rows in &mut self.of_keys {
            rows.truncate(sequence, 0);
        }
    }

    fn shortest(&self, sequence: usize) -> usize {
        self.cache.shortest(sequence)
    }

    fn truncate(&mut self, sequence: usize, len: usize) {
        self.cache.truncate(sequence, len);
        for rows in &mut self.of_keys {
            rows.truncate(sequence, len);
        }
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.cache.copy(from, to);
        for rows in &mut self.of_keys {
            rows.copy(from, to);
        }
    }

    fn memory(&self) -> CacheMemory {
        let of_keys = self.of_keys.iter().map(KeyRows::memory);
        of_keys.chain([self.cache.memory()]).sum()
    }

    fn copied(&self, sequence: usize, len: usize) -> usize {
        let of_keys = self.of_keys.iter();
        let of_keys = of_keys.map(|rows| rows.copied(sequence, len));
        self.cache.copied(sequence) + of_keys.sum::<usize>()
    }

    /// Numbers that a body reads of keys stay those of the model.
    fn round(&mut self) {
        self.cache.round();
    }
}
