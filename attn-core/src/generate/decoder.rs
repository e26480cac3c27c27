//! The decoder of a session: the code that the macro emitted, with the states of the layers.

use std::sync::Arc;

use super::{memory::CacheMemory, tokens::NewTokens};
use crate::{
    Element,
    fused::{Array, NamedTensor, VisitWeights},
};

/// A decoder of a model: type-erased access to the emitted code.
pub trait Decoder<E: Element>: Send + Sync {
    /// Computes the results of the new tokens, a row each, and caches their keys and values.
    fn decode(&mut self, new: &NewTokens, results: &mut Array<E>);

    /// The most new tokens of a sequence that it takes at once.
    fn most_new(&self) -> usize;

    /// Clears a sequence.
    fn reset(&mut self, sequence: usize);

    /// The fewest tokens, but for none, that a sequence can be cut to. Beyond its length if it cannot be cut.
    fn shortest(&self, sequence: usize) -> usize;

    /// Cuts a sequence to so many tokens.
    fn truncate(&mut self, sequence: usize, len: usize);

    /// Makes a sequence a fork of another one.
    fn copy(&mut self, from: usize, to: usize);

    /// The memory of the caches, in bytes.
    fn memory(&self) -> CacheMemory;

    /// The bytes of a sequence of `len` tokens that a fork copies, at once or before its next token. It shares the others.
    fn copied(&self, sequence: usize, len: usize) -> usize;

    /// Rounds keys and values to bf16. There are none of tokens yet.
    fn round_cache(&mut self);

    /// An independent continuation. It shares what the caches have so far.
    fn fork(&self) -> Box<dyn Decoder<E>>;

    /// The weights, and the tensors of the model that they are, unless another decoder has them, too.
    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<E>, &[NamedTensor])>;
}

/// The state of a layer of a model, for each sequence of a session.
pub trait SequenceState {
    /// The most new tokens of a sequence that it takes at once, or `usize::MAX` if it takes any number.
    fn most_new(&self) -> usize;

    /// Clears a sequence.
    fn reset(&mut self, sequence: usize);

    /// The fewest tokens, but for none, that a sequence can be cut to, or `usize::MAX` if it cannot be cut.
    fn shortest(&self, sequence: usize) -> usize;

    /// Cuts a sequence to so many tokens, not fewer than [`shortest`](Self::shortest).
    fn truncate(&mut self, sequence: usize, len: usize);

    /// Makes a sequence a fork of another one.
    fn copy(&mut self, from: usize, to: usize);

    /// Its memory, in bytes.
    fn memory(&self) -> CacheMemory;

    /// The bytes of a sequence of `len` tokens that a fork copies, at once or before its next token. It shares the others.
    fn copied(&self, sequence: usize, len: usize) -> usize;

    /// Rounds its keys and values to bf16, those of tokens to come and those of a context.
    fn round(&mut self);
}

/// The state of a model, or of a part of it, which consists of those of its parts.
pub trait SequenceStates {
    /// Its parts.
    fn parts(&self) -> Vec<&dyn SequenceState>;

    /// Its parts.
    fn parts_mut(&mut self) -> Vec<&mut dyn SequenceState>;
}

impl<P: SequenceStates> SequenceState for P {
    fn most_new(&self) -> usize {
        let each = self.parts().into_iter().map(SequenceState::most_new);
        each.min().unwrap_or(usize::MAX)
    }

    fn reset(&mut self, sequence: usize) {
        let parts = self.parts_mut();
        parts.into_iter().for_each(|part| part.reset(sequence));
    }

    fn shortest(&self, sequence: usize) -> usize {
        let each = self.parts().into_iter().map(|part| part.shortest(sequence));
        each.max().unwrap_or(0)
    }

    fn truncate(&mut self, sequence: usize, len: usize) {
        let parts = self.parts_mut();
        parts
            .into_iter()
            .for_each(|part| part.truncate(sequence, len));
    }

    fn copy(&mut self, from: usize, to: usize) {
        let parts = self.parts_mut();
        parts.into_iter().for_each(|part| part.copy(from, to));
    }

    fn memory(&self) -> CacheMemory {
        self.parts().into_iter().map(SequenceState::memory).sum()
    }

    fn copied(&self, sequence: usize, len: usize) -> usize {
        let parts = self.parts().into_iter();
        parts.map(|part| part.copied(sequence, len)).sum()
    }

    fn round(&mut self) {
        let parts = self.parts_mut();
        parts.into_iter().for_each(|part| part.round());
    }
}

/// The rounds of a loop.
impl<P: SequenceState> SequenceStates for Vec<P> {
    fn parts(&self) -> Vec<&dyn SequenceState> {
        self.iter().map(|part| part as _).collect()
    }

    fn parts_mut(&mut self) -> Vec<&mut dyn SequenceState> {
        self.iter_mut().map(|part| part as _).collect()
    }
}

/// The weights of a model, its state, and the function that the macro emits.
pub struct ModelDecoder<W, P, F> {
    /// Shared by all forks.
    pub weights: Arc<W>,
    /// The tensors of the model that these are, in their order.
    pub tensors: Arc<[NamedTensor]>,
    /// The state of its attentions.
    pub past: P,
    /// The emitted function.
    pub decode: F,
}

impl<E, W, P, F> Decoder<E> for ModelDecoder<W, P, F>
where
    E: Element,
    W: VisitWeights<E> + Send + Sync + 'static,
    P: SequenceState + Clone + Send + Sync + 'static,
    F: Fn(&W, &mut P, &NewTokens, &mut Array<E>) + Clone + Send + Sync + 'static,
{
    fn decode(&mut self, new: &NewTokens, results: &mut Array<E>) {
        (self.decode)(&self.weights, &mut self.past, new, results);
    }

    fn most_new(&self) -> usize {
        self.past.most_new()
    }

    fn reset(&mut self, sequence: usize) {
        self.past.reset(sequence);
    }

    fn shortest(&self, sequence: usize) -> usize {
        self.past.shortest(sequence)
    }

    fn truncate(&mut self, sequence: usize, len: usize) {
        self.past.truncate(sequence, len);
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.past.copy(from, to);
    }

    fn memory(&self) -> CacheMemory {
        self.past.memory()
    }

    fn copied(&self, sequence: usize, len: usize) -> usize {
        self.past.copied(sequence, len)
    }

    fn round_cache(&mut self) {
        self.past.round();
    }

    fn fork(&self) -> Box<dyn Decoder<E>> {
        Box::new(Self {
            weights: self.weights.clone(),
            tensors: self.tensors.clone(),
            past: self.past.clone(),
            decode: self.decode.clone(),
        })
    }

    fn parameters(&mut self) -> Option<(&mut dyn VisitWeights<E>, &[NamedTensor])> {
        let weights = Arc::get_mut(&mut self.weights)?;
        Some((weights, &self.tensors))
    }
}
