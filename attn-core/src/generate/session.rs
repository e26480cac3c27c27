//! Sessions: sequences that a model continues token by token.

use std::sync::Arc;

use super::{
    SessionError,
    cache::MAX_NEW,
    tokens::{Capacity, NewTokens},
};
use crate::{
    Element, Error,
    fused::{Array, Quantize, Quantizer, WeightReport},
    kernel::{Buffer, Matrix, parallel::on_pool, quantized::WeightFormat},
    memory::can_allocate,
};

/// A decoder of a model: type-erased access to the emitted code.
pub trait Decoder<E: Element>: Send + Sync {
    /// Computes the results of the new tokens, a row each, and caches their keys and values.
    fn decode(&mut self, new: &NewTokens, results: &mut Array<E>);

    /// Clears a sequence.
    fn reset(&mut self, sequence: usize);

    /// The fewest tokens, but for none, that a sequence can be cut to. Beyond its length if it cannot be cut.
    fn shortest(&self, sequence: usize) -> usize;

    /// Cuts a sequence to so many tokens.
    fn truncate(&mut self, sequence: usize, len: usize);

    /// The number of elements that the caches have allocated.
    fn elements(&self) -> usize;

    /// An independent copy.
    fn fork(&self) -> Box<dyn Decoder<E>>;

    /// Rounds the weights, unless another decoder has them, too.
    fn quantize(&mut self, format: WeightFormat) -> Option<WeightReport>;
}

/// The state of the attentions of a model, or of a part of it.
pub trait SequenceState {
    /// Clears a sequence.
    fn reset(&mut self, sequence: usize);

    /// The fewest tokens, but for none, that a sequence can be cut to, or `usize::MAX` if it cannot be cut.
    fn shortest(&self, sequence: usize) -> usize;

    /// Cuts a sequence to so many tokens, not fewer than [`shortest`](Self::shortest).
    fn truncate(&mut self, sequence: usize, len: usize);

    /// The number of elements that are allocated.
    fn elements(&self) -> usize;
}

/// The rounds of a loop.
impl<P: SequenceState> SequenceState for Vec<P> {
    fn reset(&mut self, sequence: usize) {
        self.iter_mut().for_each(|past| past.reset(sequence));
    }

    fn shortest(&self, sequence: usize) -> usize {
        let each = self.iter().map(|past| past.shortest(sequence));
        each.max().unwrap_or(0)
    }

    fn truncate(&mut self, sequence: usize, len: usize) {
        self.iter_mut()
            .for_each(|past| past.truncate(sequence, len));
    }

    fn elements(&self) -> usize {
        self.iter().map(SequenceState::elements).sum()
    }
}

/// The weights of a model, its state, and the function that the macro emits.
pub struct ModelDecoder<W, P, F> {
    /// Shared by all forks.
    pub weights: Arc<W>,
    /// The state of its attentions.
    pub past: P,
    /// The emitted function.
    pub decode: F,
}

impl<E, W, P, F> Decoder<E> for ModelDecoder<W, P, F>
where
    E: Element,
    W: Quantize<E> + Send + Sync + 'static,
    P: SequenceState + Clone + Send + Sync + 'static,
    F: Fn(&W, &mut P, &NewTokens, &mut Array<E>) + Clone + Send + Sync + 'static,
{
    fn decode(&mut self, new: &NewTokens, results: &mut Array<E>) {
        (self.decode)(&self.weights, &mut self.past, new, results);
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

    fn elements(&self) -> usize {
        self.past.elements()
    }

    fn fork(&self) -> Box<dyn Decoder<E>> {
        Box::new(Self {
            weights: self.weights.clone(),
            past: self.past.clone(),
            decode: self.decode.clone(),
        })
    }

    fn quantize(&mut self, format: WeightFormat) -> Option<WeightReport> {
        let weights = Arc::get_mut(&mut self.weights)?;
        Some(Quantizer::run(weights, format))
    }
}

/// Several sequences that a model continues, each by any number of tokens per call.
///
/// The results of a token are the last axis of the model's `forward` for the whole sequence up to it: for a language model, the
/// logits of the next token. A model that can be run in this way has the methods `sessions`, and `session` for a single sequence:
/// see [the module](super).
pub struct Sessions<E: Element> {
    decoder: Box<dyn Decoder<E>>,
    room: Capacity,
    vocabulary: usize,
    /// The number of tokens of each sequence.
    lens: Vec<usize>,
    /// The results of the last token of each sequence.
    last: Array<E>,
    /// Whether a sequence was cut, so that these are not known.
    cut: Vec<bool>,
    new: NewTokens,
    /// What was lost by rounding the weights.
    report: Option<WeightReport>,
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
            decoder: Box::new(decoder),
            room,
            vocabulary,
            lens: vec![0; room.sequences],
            cut: vec![false; room.sequences],
            last: Array::zeros(room.sequences, [width]),
            new: NewTokens::default(),
            report: None,
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

    /// Rounds the weights to fewer bits: [`Session::weights`].
    ///
    /// # Errors
    /// As [`Session::weights`].
    pub fn weights(mut self, format: WeightFormat) -> Result<Self, SessionError> {
        if let Some(report) = &self.report {
            return Err(SessionError::Rounded {
                format: report.format,
            });
        }
        let report = self.decoder.quantize(format);
        self.report = Some(report.ok_or(SessionError::SharedWeights)?);
        Ok(self)
    }

    /// What was lost by rounding the [`weights`](Self::weights), if they are rounded.
    pub fn weight_report(&self) -> Option<&WeightReport> {
        self.report.as_ref()
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
    fn advance<'t>(
        &mut self,
        given: usize,
        tokens: impl Fn(usize) -> &'t [usize],
        mut each: impl FnMut(usize, Matrix<'_, E>),
    ) -> Result<Matrix<'_, E>, SessionError> {
        self.check(given, &tokens)?;
        let longest = (0..given).map(|sequence| tokens(sequence).len()).max();
        for start in (0..longest.unwrap_or(0)).step_by(MAX_NEW) {
            self.new.clear();
            for sequence in 0..given {
                let tokens = tokens(sequence);
                let some = start.min(tokens.len())..tokens.len().min(start + MAX_NEW);
                if !some.is_empty() {
                    self.new
                        .push(sequence, self.lens[sequence], &tokens[some.clone()]);
                    self.lens[sequence] += some.len();
                    self.cut[sequence] = false;
                }
            }
            self.decode(&mut each);
        }
        Ok(self.last.view())
    }

    /// Checks all tokens before any is processed.
    fn check<'t>(
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
    fn check_tokens(
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

    /// The bytes of the KV cache. They are fewer than those of all tokens if the masks bound the cache.
    pub fn cache_bytes(&self) -> usize {
        self.decoder.elements() * size_of::<E>()
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

    /// Cuts a sequence to its first `len` tokens: [`Session::truncate`].
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

    /// An independent copy. Both share the weights.
    ///
    /// # Panics
    /// If there is no memory for it: [`try_fork`](Self::try_fork).
    pub fn fork(&self) -> Self {
        self.try_fork().unwrap_or_else(|error| panic!("{error}"))
    }

    /// An independent copy. Both share the weights.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] if there is no memory for it.
    pub fn try_fork(&self) -> Result<Self, SessionError> {
        let Capacity {
            sequences,
            capacity,
        } = self.room;
        let cache = self.decoder.elements().checked_mul(size_of::<E>());
        let results = bytes_of::<E>(sequences, self.last.view().cols());
        let all = cache
            .zip(results)
            .and_then(|(cache, results)| cache.checked_add(results));
        if !can_allocate(all) {
            return Err(SessionError::TooLarge {
                sequences,
                capacity,
            });
        }
        Ok(Self {
            decoder: self.decoder.fork(),
            room: self.room,
            vocabulary: self.vocabulary,
            lens: self.lens.clone(),
            cut: self.cut.clone(),
            last: self.last.copy(),
            new: NewTokens::default(),
            report: self.report.clone(),
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

/// One sequence that a model continues token by token: [`Sessions`] of one.
#[doc(alias("kv_cache", "past_key_values", "use_cache"))]
pub struct Session<E: Element> {
    sessions: Sessions<E>,
    /// The results of the last call that asked for those of all tokens.
    all: Vec<E>,
}

impl<E: Element> From<Sessions<E>> for Session<E> {
    /// # Panics
    /// If there is not one sequence.
    fn from(sessions: Sessions<E>) -> Self {
        assert_eq!(sessions.lens.len(), 1, "a session is of one sequence");
        Self {
            sessions,
            all: Vec::new(),
        }
    }
}

impl<E: Element> Session<E> {
    /// Rounds the weights of the session to int8 or bf16, so that a token reads a quarter or half as much memory: the matrices of linear layers, of
    /// the projections of attentions, of feed-forward layers and of experts, and the rows of embeddings and of learned positions, which a tied
    /// output shares. Other parameters stay what they are, as do keys and values, and what was computed of the inputs that the session was given when
    /// it began. The model does not change, and may be dropped.
    ///
    /// In [`WeightFormat::Int8`], products have the same bits on every processor, however many tokens are given at a time. A row with a number that
    /// is much larger than the others loses much: the [report](Self::weight_report) names it.
    ///
    /// PyTorch: `torchao.quantization.quantize_(model, Int8DynamicActivationInt8WeightConfig())`, but with 16 bits of what is multiplied with the
    /// weights; `model.bfloat16()`.
    ///
    /// ```
    /// use attn::{generate::WeightFormat::Int8, prelude::*};
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
    /// let gpt = Cpu::default().build_module::<Gpt, f32>();
    /// let mut session = gpt.session(16)?.weights(Int8)?;
    /// let report = session.weight_report().expect("the weights are rounded");
    /// assert!(report.bytes < report.bytes_before / 2);
    /// for row in &report.inexact {
    ///     println!("row {} of {}: {:.1}% is lost", row.row, row.layer, 100.0 * row.error);
    /// }
    /// let logits = session.prefill(&[0, 1, 2])?;
    /// assert_eq!(logits.len(), 65);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SessionError::Rounded`] if they are rounded already, [`SessionError::SharedWeights`] if a fork of the session has them, too.
    #[doc(alias("quantize", "int8", "bfloat16", "dtype"))]
    pub fn weights(self, format: WeightFormat) -> Result<Self, SessionError> {
        let sessions = self.sessions.weights(format)?;
        Ok(Self { sessions, ..self })
    }

    /// What was lost by rounding the [`weights`](Self::weights), if they are rounded.
    pub fn weight_report(&self) -> Option<&WeightReport> {
        self.sessions.weight_report()
    }

    /// Continues the sequence by a token. Returns its results: the logits of the next token.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    pub fn step(&mut self, token: usize) -> Result<&[E], SessionError> {
        self.prefill(&[token])
    }

    /// Continues the sequence by any number of tokens. Returns the results of the last one.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    pub fn prefill(&mut self, tokens: &[usize]) -> Result<&[E], SessionError> {
        Ok(self.sessions.prefill(&[tokens])?.row(0))
    }

    /// The same with the results of every new token, `[tokens, width]`: what each says of the next one. The session keeps memory for as many
    /// rows.
    ///
    /// ```
    /// use attn::{generate::Choice, prelude::*};
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
    /// let mut session = model.session(20)?;
    /// let text = [3, 1, 4, 1, 5];
    /// let logits = session.prefill_all(&text)?;
    /// let mut log_probability = 0.0;
    /// for (place, token) in text[1..].iter().enumerate() {
    ///     log_probability += Choice::new(*token, logits.row(place), 0)?.log_probability;
    /// }
    /// assert!(log_probability < 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `model(tokens, past_key_values=cache).logits`; vLLM: `prompt_logprobs`.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    #[doc(alias("prompt_logprobs", "echo"))]
    pub fn prefill_all(&mut self, tokens: &[usize]) -> Result<Matrix<'_, E>, SessionError> {
        let all = &mut self.all;
        all.clear();
        let last = self
            .sessions
            .advance(1, |_| tokens, |_, rows| all.extend(rows.values()))?;
        Ok(Matrix::new(all, tokens.len(), last.cols()))
    }

    /// The results of the last token, or zeros if there is none, or if it was [cut](Self::truncate) off.
    pub fn results(&self) -> &[E] {
        self.sessions.results().row(0)
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.sessions.lens()[0]
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum number of tokens.
    pub fn capacity(&self) -> usize {
        self.sessions.capacity()
    }

    /// The bytes of the KV cache: [`Sessions::cache_bytes`].
    pub fn cache_bytes(&self) -> usize {
        self.sessions.cache_bytes()
    }

    /// Cuts the sequence to its first `len` tokens: it goes on as if the later ones had never been there, with the same bits, unless a window
    /// has evicted keys since, which changes the order of sums.
    ///
    /// The [`results`](Self::results) of its last token are not kept: the next call needs a token.
    ///
    /// A mask with a window evicts keys. The keys that are still there allow to take back 63 tokens that came one by one, and more if there
    /// was no need to evict any; those of a call of `n` tokens allow to take back the call. A `scan` and a causal convolution have a state
    /// that only goes on: such a session can be cut to 0 alone, and a [fork](Self::fork) keeps an earlier state.
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
    /// let mut session = model.session(20)?;
    /// session.prefill(&[3, 1, 4])?;
    /// let expected = session.step(1)?.to_vec();
    /// session.prefill(&[9, 9])?;
    /// session.truncate(3)?;
    /// assert_eq!(session.step(1)?, expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `past_key_values.crop(len)`.
    ///
    /// # Errors
    /// [`SessionError::Truncate`] if there are fewer tokens, or if no longer all is kept that they need. Then the sequence has not changed.
    #[doc(alias("crop", "rollback"))]
    pub fn truncate(&mut self, len: usize) -> Result<(), SessionError> {
        self.sessions.truncate(0, len)
    }

    /// An error if there are tokens that cannot be taken back.
    pub(super) fn can_go_back(&self) -> Result<(), SessionError> {
        let tokens = self.len();
        match self.sessions.decoder.shortest(0) <= tokens {
            true => Ok(()),
            false => Err(SessionError::Truncate {
                sequence: 0,
                tokens,
                len: tokens.saturating_sub(1),
                shortest: tokens,
            }),
        }
    }

    /// Clears the sequence.
    pub fn reset(&mut self) {
        self.sessions.reset(0);
    }

    /// Replaces the sequence by these tokens.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    pub(super) fn restart(&mut self, tokens: &[usize]) -> Result<(), SessionError> {
        self.sessions.check_tokens(0, 0, tokens)?;
        self.reset();
        self.prefill(tokens).map(drop)
    }

    /// An independent copy. Both share the weights.
    ///
    /// # Panics
    /// If there is no memory for it: [`try_fork`](Self::try_fork).
    pub fn fork(&self) -> Self {
        self.sessions.fork().into()
    }

    /// An independent copy. Both share the weights.
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] if there is no memory for it.
    pub fn try_fork(&self) -> Result<Self, SessionError> {
        Ok(self.sessions.try_fork()?.into())
    }
}
