//! The keys and values of a context, which all tokens of a session read: those of an encoder in a decoder.

use std::sync::Arc;

use super::{
    cache::{check_memory, decode_spans},
    cached_rows::CachedRows,
    decoder::SequenceState,
    memory::CacheMemory,
    pages::Pages,
    tokens::NewTokens,
};
use crate::{
    Element, Error,
    kernel::{
        Kernels, Matrix, MatrixMut,
        attention::{Attention, HeadTransform, Positions},
    },
    model::FusedBlock,
};

/// A layer of `attention!` with a context, in a model with sessions. Of its inputs, all but the first one are the sources of keys and values.
pub trait DecodeWithContext<
    E: Element,
    const INPUTS: usize,
    const READ: usize,
    const SOURCES: usize,
>: FusedBlock<E, INPUTS, READ>
{
    /// The state of the layer: the keys and values of the context.
    type DecodeState: SequenceState + Clone;

    /// The state for a context, of an attention with the axes batch, query and key.
    ///
    /// # Errors
    /// If the keys and values do not fit into memory.
    fn past<Dev>(
        weights: &Self::Weights,
        axes: (usize, usize, usize),
        data: &Self::Data,
        sources: [Matrix<'_, E>; SOURCES],
    ) -> Result<Self::DecodeState, Error<Dev>>;

    /// Computes the output for the new tokens, and the logarithms of the sums, `[heads, tokens]`.
    fn decode(
        weights: &Self::Weights,
        past: &mut Self::DecodeState,
        new: &NewTokens,
        x: Matrix<'_, E>,
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    );
}

/// The keys and values of the contexts of all sequences, for one attention, after their transforms.
#[derive(Debug)]
pub struct ContextCache<E> {
    keys: CachedRows<E>,
    values: CachedRows<E>,
    sequences: usize,
    /// The number of rows of a sequence.
    len: usize,
}

impl<E: Kernels> ContextCache<E> {
    /// Caches projected keys and values, in the layout that [`Attention::forward`] takes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn new<Dev>(
        attention: &Attention<'_, E>,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
    ) -> Result<Self, Error<Dev>> {
        let sizes = attention.sizes;
        let (batch, len) = (sizes.batch, sizes.key);
        check_memory::<E, Dev>(batch, len, [k.cols(), v.cols()])?;
        let of = |transform: &HeadTransform<'_, E>, x: Matrix<'_, E>| {
            let heads = sizes.kv_heads;
            let of_row = [heads, x.cols() / heads.max(1)];
            let mut pages = CachedRows::Model(Pages::new(batch, len, len, of_row));
            for sequence in 0..batch {
                let x = x.some_rows(sequence * len..(sequence + 1) * len);
                pages.write_vectors(sequence, 0..len, transform, 0, x);
            }
            pages
        };
        Ok(Self {
            sequences: batch,
            keys: of(&attention.key, k),
            values: of(&attention.value, v),
            len,
        })
    }

    /// The bytes that are allocated.
    fn bytes(&self) -> usize {
        let memory = [&self.keys, &self.values].map(CachedRows::memory);
        memory.iter().map(|memory| memory.capacity).sum()
    }

    /// The same keys and values, rounded to bf16.
    fn rounded(&self) -> Self {
        let [keys, values] =
            [&self.keys, &self.values].map(|rows| rows.rounded(self.sequences, self.len));
        Self {
            keys,
            values,
            ..*self
        }
    }

    /// The attention of new tokens to the context of their sequence. `lse` gets the logarithms of the sums, `[heads, tokens]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn attend(
        &self,
        new: &NewTokens,
        attention: &Attention<'_, E>,
        q: Matrix<'_, E>,
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    ) {
        decode_spans(new.spans(), attention, q, output, lse, |span| {
            let positions = Positions {
                sequence: span.sequence,
                first: span.first,
                kept: self.len,
                dropped: 0,
            };
            let past = [&self.keys, &self.values];
            (
                positions,
                past.map(|rows| rows.read(span.sequence, self.len)),
            )
        });
    }
}

/// The state of an attention to a context, which never changes: all forks share it.
pub struct ContextState<C, E> {
    /// The call for the maximum length.
    pub call: Arc<C>,
    /// The keys and values.
    pub cache: Arc<ContextCache<E>>,
}

impl<C, E> Clone for ContextState<C, E> {
    fn clone(&self) -> Self {
        Self {
            call: self.call.clone(),
            cache: self.cache.clone(),
        }
    }
}

impl<C, E: Kernels> SequenceState for ContextState<C, E> {
    fn most_new(&self) -> usize {
        usize::MAX
    }

    /// A sequence keeps its context.
    fn reset(&mut self, _: usize) {}

    fn shortest(&self, _: usize) -> usize {
        0
    }

    fn truncate(&mut self, _: usize, _: usize) {}

    /// The context of the other sequence stays its own.
    fn copy(&mut self, _: usize, _: usize) {}

    fn memory(&self) -> CacheMemory {
        CacheMemory::of(self.cache.bytes(), Arc::strong_count(&self.cache) > 1)
    }

    fn copied(&self, _: usize, _: usize) -> usize {
        0
    }

    fn round(&mut self) {
        self.cache = Arc::new(self.cache.rounded());
    }
}
