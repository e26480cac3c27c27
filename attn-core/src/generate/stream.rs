//! Streams of generated tokens.

use super::{Choice, Sampler, Sampling, SamplingError, Session, SessionError};
use crate::Element;

/// Why there is no next token.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The session cannot continue.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// No token can be chosen.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// The draft does not fit the model that it drafts for.
    #[error(
        "the draft has results for {draft} tokens, and the model for {target}: both need the same vocabulary"
    )]
    Draft {
        /// The number of results of the model.
        target: usize,
        /// The number of those of the draft.
        draft: usize,
    },
    /// A prompt cannot be encoded, or a token cannot be decoded.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Text(#[from] crate::text::TextError),
}

/// The constraint that leaves all logits as they are.
pub type Unconstrained = fn(&[usize], &mut [f64]);

/// An iterator of generated tokens: [`Session::generate`] and [`Session::generate_endless`].
///
/// Tokens are chosen under a [constraint](Self::constrain) of type `C`. A token is computed on demand. The iterator ends before the first token of `stop`, and after an error.
pub struct Generated<'s, E: Element, C = Unconstrained> {
    session: &'s mut Session<E>,
    sampler: Sampler,
    constraint: C,
    pub(super) stop: &'s [usize],
    /// The tokens from the prompt on. If `pending`, the last one has not been given to the session.
    tokens: Vec<usize>,
    pending: bool,
    /// Whether a full session starts again.
    refills: bool,
    ended: bool,
}

impl<E: Element> Session<E> {
    /// Continues the sequence by a prompt, and then by the tokens that `sampling` chooses, up to one of `stop`.
    ///
    /// A token is chosen by the results of the token before it, `[vocab]`: the logits. The session has processed all returned tokens except the
    /// last one. The repetition penalty applies to tokens from the prompt on.
    ///
    /// `transformers`: `model.generate(prompt, do_sample=True, eos_token_id=stop)` with a `TextIteratorStreamer`; nanoGPT:
    /// `model.generate(idx, max_new_tokens, temperature, top_k)`, with `max_new_tokens` as `take(..)` of the iterator.
    ///
    /// # Errors
    /// [`SamplingError::Option`] if an option has a meaningless value; the errors of [`prefill`](Self::prefill), for the prompt. Then the
    /// session has not changed. The iterator returns [`SessionError::Full`] where the session is full, and a [`SamplingError`] if no token can
    /// be chosen.
    #[doc(alias = "TextStreamer")]
    pub fn generate<'s>(
        &'s mut self,
        prompt: &[usize],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<Generated<'s, E>, GenerateError> {
        let sampler = Sampler::new(sampling)?;
        self.prefill(prompt)?;
        Ok(Generated::new(self, prompt, sampler, stop, false))
    }

    /// As [`generate`](Self::generate), but without an end at the [capacity](Self::capacity): a full session starts again with the last
    /// tokens from the prompt on, as many as half of it has place for. So the context of a token is between a half of the capacity and all of it
    /// if the prompt or what was generated is that long, and most steps cost one token. What the session read before the prompt is forgotten
    /// then: give it as a part of the prompt where it is to be kept.
    ///
    /// This is for models with learned positions, which have no more positions than the blocks that they were trained on. A prompt that does
    /// not fit replaces what the session has read, and the model reads only its end.
    ///
    /// nanoGPT: `idx_cond = idx[:, -block_size:]`, which reads a whole block for each token.
    ///
    /// # Errors
    /// If the sequence and the prompt are empty, or if an option has a meaningless value.
    pub fn generate_endless<'s>(
        &'s mut self,
        prompt: &[usize],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<Generated<'s, E>, GenerateError> {
        let sampler = Sampler::new(sampling)?;
        let capacity = self.capacity();
        if prompt.len() > capacity - self.len() {
            self.restart(&prompt[prompt.len().saturating_sub(capacity)..])?;
        } else {
            self.prefill(prompt)?;
        }
        Ok(Generated::new(self, prompt, sampler, stop, true))
    }
}

impl<'s, E: Element> Generated<'s, E> {
    fn new(
        session: &'s mut Session<E>,
        prompt: &[usize],
        sampler: Sampler,
        stop: &'s [usize],
        refills: bool,
    ) -> Self {
        Self {
            session,
            sampler,
            constraint: |_, _| (),
            stop,
            tokens: prompt.to_vec(),
            pending: false,
            refills,
            ended: false,
        }
    }
}

impl<'s, E: Element, C> Generated<'s, E, C> {
    /// Chooses under a constraint: before each choice it is called with the tokens from the prompt on and the logits, and may change logits,
    /// to -∞ to exclude a token. Grammars, allowed words, biases and penalties of your own are such functions.
    ///
    /// It stands behind the repetition penalty and before the temperature, and replaces the constraint before it.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*};
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
    /// // An even token after an odd one, and the other way round.
    /// let alternate = |tokens: &[usize], logits: &mut [f64]| {
    ///     let last = tokens.last().copied().unwrap_or(0);
    ///     logits.iter_mut().skip(last % 2).step_by(2).for_each(|logit| *logit = f64::NEG_INFINITY);
    /// };
    /// let tokens = session.generate(&[4], Sampling::default(), &[])?.constrain(alternate).take(6);
    /// let parity = tokens.map(|token| Ok(token? % 2)).collect::<Result<Vec<_>, attn::generate::GenerateError>>()?;
    /// assert_eq!(parity, [1, 0, 1, 0, 1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `generate(.., logits_processor=..)`, `prefix_allowed_tokens_fn`; vLLM: `logits_processors`. The iterator ends with
    /// [`SamplingError::NoTokens`] if every token is excluded.
    #[doc(alias(
        "logits_processor",
        "prefix_allowed_tokens_fn",
        "logit_bias",
        "bad_words_ids"
    ))]
    pub fn constrain<N>(self, constraint: N) -> Generated<'s, E, N>
    where
        N: FnMut(&[usize], &mut [f64]),
    {
        Generated {
            session: self.session,
            sampler: self.sampler,
            constraint,
            stop: self.stop,
            tokens: self.tokens,
            pending: self.pending,
            refills: self.refills,
            ended: self.ended,
        }
    }

    /// The same tokens, each with the logarithm of its probability, and of those of the `top` likeliest tokens: an iterator of [`Choice`]s.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*};
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
    /// for choice in session.generate(&[4], Sampling::default(), &[])?.log_probabilities(5).take(3) {
    ///     let choice = choice?;
    ///     assert!(choice.log_probability <= choice.top[0].1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// vLLM: `SamplingParams(logprobs=5)`; `transformers`: `compute_transition_scores` of `output_logits=True`.
    #[doc(alias(
        "logprobs",
        "top_logprobs",
        "output_scores",
        "compute_transition_scores"
    ))]
    pub fn log_probabilities(self, top: usize) -> Choices<'s, E, C> {
        Choices { tokens: self, top }
    }
}

impl<E: Element, C: FnMut(&[usize], &mut [f64])> Generated<'_, E, C> {
    fn choose(&mut self) -> Result<usize, GenerateError> {
        if let (true, Some(&last)) = (self.pending, self.tokens.last()) {
            let capacity = self.session.capacity();
            if self.refills && self.session.len() == capacity {
                let start = self.tokens.len().saturating_sub(capacity.div_ceil(2));
                self.session.restart(&self.tokens[start..])?;
            } else {
                self.session.step(last)?;
            }
        }
        let results = self.session.results();
        let token = self
            .sampler
            .choose_where(results, &self.tokens, &mut self.constraint)?;
        self.tokens.push(token);
        self.pending = true;
        Ok(token)
    }
}

impl<E: Element, C: FnMut(&[usize], &mut [f64])> Iterator for Generated<'_, E, C> {
    type Item = Result<usize, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let token = self.choose();
        let stops = matches!(&token, Ok(token) if self.stop.contains(token));
        self.ended = stops || token.is_err();
        (!stops).then_some(token)
    }
}

/// An iterator of generated tokens with the logarithms of their probabilities: [`Generated::log_probabilities`].
pub struct Choices<'s, E: Element, C = Unconstrained> {
    tokens: Generated<'s, E, C>,
    top: usize,
}

impl<E: Element, C: FnMut(&[usize], &mut [f64])> Iterator for Choices<'_, E, C> {
    type Item = Result<Choice, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        let token = self.tokens.next()?;
        // The session is given a token when the next one is asked for: these are the logits that it was chosen of.
        let logits = self.tokens.session.results();
        let logits = self.tokens.sampler.known(logits);
        Some(token.and_then(|token| Ok(Choice::new(token, logits, self.top)?)))
    }
}
