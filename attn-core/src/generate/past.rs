//! An attention inside of a session.

use std::sync::Arc;

use super::{
    cache::Cache,
    session::Remembers,
    tokens::{Capacity, NewTokens},
};
use crate::{
    Element, Error,
    kernel::{Kernels, Matrix, MatrixMut},
    model::FusedLayer,
};

/// A layer of `attention!` inside of a model that goes on token by token.
pub trait Decode<E: Element>: FusedLayer<E> {
    /// Its keys and values so far.
    type DecodeState: Remembers + Clone;

    /// Nothing seen yet.
    ///
    /// # Errors
    /// If the longest sequence is too long for the layer.
    fn past<Dev>(weights: &Self::Weights, room: Capacity) -> Result<Self::DecodeState, Error<Dev>>;

    /// Writes the output for the new tokens, and remembers them.
    fn decode(
        weights: &Self::Weights,
        past: &mut Self::DecodeState,
        new: &NewTokens,
        x: Matrix<'_, E>,
        output: MatrixMut<'_, E>,
    );
}

/// The cache of an attention, and its call for the longest sequence that there may be.
pub struct DecodeState<C, E> {
    /// Shared by all copies.
    pub call: Arc<C>,
    /// The keys and values.
    pub cache: Cache<E>,
}

impl<C, E: Kernels> Clone for DecodeState<C, E> {
    fn clone(&self) -> Self {
        Self {
            call: self.call.clone(),
            cache: self.cache.clone(),
        }
    }
}

impl<C, E: Kernels> Remembers for DecodeState<C, E> {
    fn reset(&mut self, sequence: usize) {
        self.cache.reset(sequence);
    }

    fn numbers(&self) -> usize {
        self.cache.numbers()
    }
}
