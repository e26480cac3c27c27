//! Several sequences that a model continues token by token.

use std::sync::Arc;

use super::{
    SessionError,
    decoder::Decoder,
    memory::CacheMemory,
    tokens::{Capacity, NewTokens},
};
use crate::{
    Element, Error,
    fused::{Array, NamedTensor, RoundedWeights, VisitWeights, WeightReport, round_weights},
    kernel::{Buffer, Dtype, Matrix, parallel::on_pool, quantized::WeightFormat},
    memory::can_allocate,
};

/// The new tokens of all sequences in one step. More are processed in several steps, so that memory does not grow with the prompt. A step of many
/// tokens packs all weights that are not rounded, so a long step takes less time than several short ones.
const ROWS: usize = 512;

/// The new tokens of a sequence in one step if there are many sequences.
const LEAST_NEW: usize = 128;

/// Several sequences that a model continues, each by any number of tokens per call.
///
/// The results of a token are the last axis of the model's `forward` for the whole sequence up to it: for a language model, the
/// logits of the next token. A model that can be run in this way has the methods `sessions`, and `session` for a single sequence:
/// see [the module](super).
pub struct Sessions<E: Element> {
    decoder: Box<dyn Decoder<E>>,
    /// The most new tokens of a sequence that it takes at once.
    most_new: usize,
    room: Capacity,
    vocabulary: usize,
    /// The number of tokens of each sequence.
    lens: Vec<usize>,
    /// The results of the last token of each sequence.
    last: Array<E>,
    /// Whether a sequence was cut, so that these are not known.
    cut: Vec<bool>,
    new: NewTokens,
    /// The weights, if they are rounded. Forks share them.
    rounded: Option<Arc<RoundedWeights<E>>>,
}

impl<E: Element> Sessions<E> {
    /// Empty sequences. The model has a vocabulary of `vocabulary` tokens and `width` results for each token.
    pub(super) fn new(
        decoder: impl Decoder<E> + 'static,
        room: Capacity,
        vocabulary: usize,
        width: usize,
    ) -> Self {
        Self {
            most_new: decoder.most_new(),
            decoder: Box::new(decoder),
            room,
            vocabulary,
            lens: vec![0; room.sequences],
            cut: vec![false; room.sequences],
            last: Array::zeros(room.sequences, [width]),
            new: NewTokens::none(room),
            rounded: None,
        }
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is no memory for the results of every sequence.
    #[doc(hidden)]
    pub fn try_new<Dev>(
        decoder: impl Decoder<E> + 'static,
        room: Capacity,
        vocabulary: usize,
        width: usize,
    ) -> Result<Self, Error<Dev>> {
        match can_allocate(bytes_of::<E>(room.sequences, width)) {
            true => Ok(Self::new(decoder, room, vocabulary, width)),
            false => Err(Error::TooLarge {
                layer: "a session",
                sizes: vec![("sequences", room.sequences), ("width", width)],
            }),
        }
    }

    /// Rounds the weights to fewer bits: [`Session::weights`](super::Session::weights).
    ///
    /// # Errors
    /// As [`Session::weights`](super::Session::weights).
    pub fn weights(mut self, format: WeightFormat) -> Result<Self, SessionError> {
        let (weights, tensors) = self.parameters()?;
        let rounded = round_weights(weights, tensors, format);
        Ok(self.with_rounded(rounded))
    }

    /// Keeps keys and values in this dtype: [`Session::cache`](super::Session::cache).
    ///
    /// # Errors
    /// As [`Session::cache`](super::Session::cache).
    pub fn cache(mut self, dtype: Dtype) -> Result<Self, SessionError> {
        if let Some((sequence, tokens)) = self.first_with_tokens() {
            return Err(SessionError::Cached { sequence, tokens });
        }
        if dtype == Dtype::Bf16 {
            self.decoder.round_cache();
        }
        Ok(self)
    }

    /// The first sequence that has keys and values of tokens, and its number of tokens.
    fn first_with_tokens(&self) -> Option<(usize, usize)> {
        let mut lens = self.lens.iter().copied().enumerate();
        lens.find(|(_, len)| *len > 0)
    }

    /// An error if a sequence has keys and values of the weights so far.
    pub(crate) fn check_no_tokens(&self) -> Result<(), SessionError> {
        match self.first_with_tokens() {
            Some((sequence, tokens)) => Err(SessionError::OtherWeights { sequence, tokens }),
            None => Ok(()),
        }
    }

    /// The weights as they were read, and the tensors of the model that they are.
    pub(crate) fn parameters(
        &mut self,
    ) -> Result<(&mut dyn VisitWeights<E>, &[NamedTensor]), SessionError> {
        if let Some(WeightReport { format, .. }) = self.weight_report() {
            return Err(SessionError::Rounded { format: *format });
        }
        self.decoder.parameters().ok_or(SessionError::SharedWeights)
    }

    /// The same with weights that were rounded in place.
    pub(crate) fn with_rounded(self, rounded: RoundedWeights<E>) -> Self {
        Self {
            rounded: Some(Arc::new(rounded)),
            ..self
        }
    }

    /// The weights, if they are rounded.
    pub(crate) fn rounded(&self) -> Option<&RoundedWeights<E>> {
        self.rounded.as_deref()
    }

    /// The report of the rounded [`weights`](Self::weights), if they are rounded.
    pub fn weight_report(&self) -> Option<&WeightReport> {
        Some(&self.rounded()?.report)
    }

    /// Continues every sequence by one token, sequence `i` by `tokens[i]`. Returns the results, `[sequences, width]`.
    ///
    /// # Errors
    /// [`SessionError`]. Then no sequence has changed.
    pub fn step(&mut self, tokens: &[usize]) -> Result<Matrix<'_, E>, SessionError> {
        let of = |sequence| std::slice::from_ref(&tokens[sequence]);
        self.advance(tokens.len(), of, |_, _| ())
    }

    /// Continues every sequence by any number of tokens. Returns the results of the last token of each, `[sequences, width]`.
    ///
    /// # Errors
    /// [`SessionError`]. Then no sequence has changed.
    pub fn prefill(&mut self, tokens: &[&[usize]]) -> Result<Matrix<'_, E>, SessionError> {
        self.advance(tokens.len(), |sequence| tokens[sequence], |_, _| ())
    }

    /// `each(sequence, results)` gets the results of the new tokens, `[tokens, width]`, in their order.
    pub(super) fn advance<'t>(
        &mut self,
        given: usize,
        tokens: impl Fn(usize) -> &'t [usize],
        each: impl FnMut(usize, Matrix<'_, E>),
    ) -> Result<Matrix<'_, E>, SessionError> {
        self.check(given, &tokens)?;
        self.read(given, tokens, each);
        Ok(self.last.view())
    }

    /// The same for tokens that were checked.
    fn read<'t>(
        &mut self,
        given: usize,
        tokens: impl Fn(usize) -> &'t [usize],
        mut each: impl FnMut(usize, Matrix<'_, E>),
    ) {
        let longest = (0..given).map(|sequence| tokens(sequence).len()).max();
        let share = (ROWS / given.max(1)).max(LEAST_NEW);
        let most = share.min(self.most_new);
        for start in (0..longest.unwrap_or(0)).step_by(most) {
            self.new.clear();
            for sequence in 0..given {
                let tokens = tokens(sequence);
                let some = start.min(tokens.len())..tokens.len().min(start + most);
                if !some.is_empty() {
                    self.new
                        .push(sequence, self.lens[sequence], &tokens[some.clone()]);
                    self.lens[sequence] += some.len();
                    self.cut[sequence] = false;
                }
            }
            self.decode(&mut each);
        }
    }

    /// Makes all sequences the first one, continued by a prompt.
    pub(super) fn prefill_samples(&mut self, prompt: &[usize]) -> Result<(), SessionError> {
        let (given, sequences) = (1, self.room.sequences);
        if sequences == 0 {
            return Err(SessionError::Sequences { given, sequences });
        }
        let len = self.lens[0];
        if self.cut[0] && prompt.is_empty() {
            return Err(SessionError::Cut { sequence: 0, len });
        }
        self.check_tokens(0, len, prompt)?;
        self.read(given, |_| prompt, |_, _| ());
        (1..sequences).for_each(|sequence| self.copy(0, sequence));
        Ok(())
    }

    /// Checks all tokens before any is processed.
    pub(super) fn check<'t>(
        &self,
        given: usize,
        tokens: impl Fn(usize) -> &'t [usize],
    ) -> Result<(), SessionError> {
        let sequences = self.room.sequences;
        if given != sequences {
            return Err(SessionError::Sequences { given, sequences });
        }
        for (sequence, &len) in self.lens.iter().enumerate() {
            let tokens = tokens(sequence);
            if self.cut[sequence] && tokens.is_empty() {
                return Err(SessionError::Cut { sequence, len });
            }
            self.check_tokens(sequence, len, tokens)?;
        }
        Ok(())
    }

    /// Checks the new tokens of a sequence that has so many.
    pub(super) fn check_tokens(
        &self,
        sequence: usize,
        len: usize,
        tokens: &[usize],
    ) -> Result<(), SessionError> {
        let capacity = self.room.capacity;
        if len == 0 && tokens.is_empty() {
            return Err(SessionError::Empty { sequence });
        }
        if tokens.len() > capacity - len {
            return Err(SessionError::Full {
                sequence,
                len,
                given: tokens.len(),
                capacity,
            });
        }
        match tokens.iter().position(|&token| token >= self.vocabulary) {
            None => Ok(()),
            Some(place) => Err(SessionError::Unknown {
                sequence,
                place,
                token: tokens[place],
                vocabulary: self.vocabulary,
            }),
        }
    }

    fn decode(&mut self, each: &mut impl FnMut(usize, Matrix<'_, E>)) {
        let new = &self.new;
        let decoder = &mut self.decoder;
        let width = self.last.view().cols();
        let mut results = Array::uninit(new.len(), [width]);
        // A token is worth more than one thread, for any model.
        on_pool(|| decoder.decode(new, &mut results));
        for span in new.spans() {
            each(span.sequence, results.view().some_rows(span.rows.clone()));
            let row = results.view().row(span.rows.end - 1);
            self.last
                .view_mut()
                .row_mut(span.sequence)
                .copy_from_slice(row);
        }
    }

    /// The results of the last token of each sequence, `[sequences, width]`, or zeros if it is empty, or was cut.
    pub fn results(&self) -> Matrix<'_, E> {
        self.last.view()
    }

    /// The number of tokens of each sequence.
    pub fn lens(&self) -> &[usize] {
        &self.lens
    }

    /// The maximum number of tokens of a sequence.
    pub fn capacity(&self) -> usize {
        self.room.capacity
    }

    /// The bytes of the KV cache at the capacity. They are fewer than those of all tokens if the masks bound the cache.
    pub fn cache_bytes(&self) -> usize {
        self.cache_memory().capacity
    }

    /// The bytes of the KV cache now: those of this session alone, and those that it shares with [forks](super::Session::fork).
    ///
    /// vLLM: `kv_cache_usage`, of blocks of which prefix caching counts each once.
    #[doc(alias("get_seq_length", "kv_cache_usage", "paged"))]
    pub fn cache_memory(&self) -> CacheMemory {
        self.decoder.memory()
    }

    /// Makes sequence `to` a fork of sequence `from`: it has the same tokens, shares their keys and values, and goes on independently. What it had
    /// before is forgotten, but for a memory that it was given when the session started. This is a step of a beam search of your own.
    ///
    /// ```
    /// use attn::prelude::*;
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let mut sessions = model.sessions(2, 20)?;
    /// sessions.prefill(&[&[3, 1, 4, 1, 5], &[9]])?;
    /// sessions.copy(0, 1);
    /// let logits = sessions.step(&[2, 2])?;
    /// assert_eq!(logits.row(0), logits.row(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `past_key_values.reorder_cache(beam_idx)`; llama.cpp: `llama_memory_seq_cp`.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[doc(alias("reorder_cache", "beam_idx", "seq_cp", "batch_repeat_interleave"))]
    pub fn copy(&mut self, from: usize, to: usize) {
        let row = self.last.view().row(from).to_vec();
        self.last.view_mut().row_mut(to).copy_from_slice(&row);
        self.lens[to] = self.lens[from];
        self.cut[to] = self.cut[from];
        if from != to {
            self.decoder.copy(from, to);
        }
    }

    /// Clears a sequence.
    ///
    /// # Panics
    /// If there is no such sequence.
    pub fn reset(&mut self, sequence: usize) {
        self.decoder.reset(sequence);
        self.lens[sequence] = 0;
        self.cut[sequence] = false;
        self.last.view_mut().row_mut(sequence).fill(E::zero());
    }

    /// Cuts a sequence to its first `len` tokens: [`Session::truncate`](super::Session::truncate).
    ///
    /// # Errors
    /// [`SessionError::Truncate`]. Then the sequence has not changed.
    ///
    /// # Panics
    /// If there is no such sequence.
    #[doc(alias("crop", "rollback"))]
    pub fn truncate(&mut self, sequence: usize, len: usize) -> Result<(), SessionError> {
        let tokens = self.lens[sequence];
        if len == tokens {
            return Ok(());
        }
        if len == 0 {
            self.reset(sequence);
            return Ok(());
        }
        let shortest = self.decoder.shortest(sequence);
        if len > tokens || len < shortest {
            return Err(SessionError::Truncate {
                sequence,
                tokens,
                len,
                shortest: shortest.min(tokens),
            });
        }
        self.decoder.truncate(sequence, len);
        self.lens[sequence] = len;
        self.cut[sequence] = true;
        self.last.view_mut().row_mut(sequence).fill(E::zero());
        Ok(())
    }

    /// The most tokens that can always be taken back, if they were given one by one or in one call: half of the room for new tokens in a
    /// cache that evicts keys.
    pub(super) fn most_to_take_back(&self) -> usize {
        self.most_new.saturating_sub(1) / 2
    }

    /// An error if tokens cannot be taken back once a sequence is continued by `given` of them. They are still to be read.
    pub(super) fn can_go_back(&self, sequence: usize, given: usize) -> Result<(), SessionError> {
        let tokens = self.lens[sequence];
        let len = tokens + given;
        match self.decoder.shortest(sequence) <= len {
            true => Ok(()),
            false => Err(SessionError::Truncate {
                sequence,
                tokens,
                len,
                shortest: len + 1,
            }),
        }
    }

    /// Independent continuations of all sequences: [`Session::fork`](super::Session::fork).
    ///
    /// # Panics
    /// If there is no memory for the tokens to come: [`try_fork`](Self::try_fork).
    pub fn fork(&self) -> Self {
        self.try_fork().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Independent continuations of all sequences: [`Session::fork`](super::Session::fork).
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] if there is no memory for the tokens to come.
    pub fn try_fork(&self) -> Result<Self, SessionError> {
        let Capacity {
            sequences,
            capacity,
        } = self.room;
        let lens = self.lens.iter().enumerate();
        let copied = lens.map(|(sequence, len)| self.decoder.copied(sequence, *len));
        let parts = [
            bytes_of::<E>(sequences, self.last.view().cols()),
            Some(self.decoder.memory().rest()),
            Some(copied.sum()),
        ];
        let all = parts
            .into_iter()
            .try_fold(0, |sum: usize, part| sum.checked_add(part?));
        if !can_allocate(all) {
            return Err(SessionError::TooLarge {
                sequences,
                capacity,
            });
        }
        Ok(Self {
            decoder: self.decoder.fork(),
            most_new: self.most_new,
            room: self.room,
            vocabulary: self.vocabulary,
            lens: self.lens.clone(),
            cut: self.cut.clone(),
            last: self.last.copy(),
            new: NewTokens::none(self.room),
            rounded: self.rounded.clone(),
        })
    }
}

/// The bytes of [`Sessions`] without the cache, or `None` if the number overflows.
fn bytes_of<E: Element>(sequences: usize, width: usize) -> Option<usize> {
    let results = sequences
        .checked_mul(width)
        .and_then(Buffer::<E>::allocation_len)
        .and_then(|taken| taken.checked_mul(size_of::<E>()));
    let lens = sequences.checked_mul(size_of::<usize>() + size_of::<bool>());
    results?.checked_add(lens?)
}
