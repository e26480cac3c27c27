//! Streams of generated tokens.

use super::{Sampler, Sampling, SamplingError, Session, SessionError};
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
    /// A prompt cannot be encoded, or a token cannot be decoded.
    #[cfg(feature = "text")]
    #[error(transparent)]
    Text(#[from] crate::text::TextError),
}

/// An iterator of generated tokens: [`Session::generate`] and [`Session::generate_endless`].
///
/// A token is computed on demand. The iterator ends before the first token of `stop`, and after an error.
pub struct Generated<'s, E: Element> {
    session: &'s mut Session<E>,
    sampler: Sampler,
    stop: &'s [usize],
    /// All tokens so far. If `pending`, the last one has not been given to the session.
    tokens: Vec<usize>,
    pending: bool,
    /// Whether a full session starts again.
    refills: bool,
    ended: bool,
}

impl<E: Element> Session<E> {
    /// Continues the sequence by a prompt, and then by the tokens that `sampling` chooses, up to one of `stop`.
    ///
    /// The session has processed all returned tokens except the last one. The repetition penalty applies to tokens from the
    /// prompt on.
    ///
    /// # Errors
    /// If the prompt does not fit, if the sequence and the prompt are empty, or if an option has a meaningless value.
    #[doc(alias = "TextStreamer")]
    pub fn generate<'s>(
        &'s mut self,
        prompt: &[usize],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<Generated<'s, E>, GenerateError> {
        let sampler = Sampler::new(sampling)?;
        self.prefill(prompt)?;
        Ok(Generated {
            session: self,
            sampler,
            stop,
            tokens: prompt.to_vec(),
            pending: false,
            refills: false,
            ended: false,
        })
    }

    /// As [`generate`](Self::generate), but without an end at the [capacity](Self::capacity): a full session starts again with the last half
    /// of its tokens. So the context of a token is between a half of the capacity and all of it, and most steps cost one token.
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
        let capacity = self.capacity();
        let mut read = prompt;
        if prompt.len() > capacity - self.len() {
            self.reset();
            read = &prompt[prompt.len().saturating_sub(capacity)..];
        }
        let mut generated = self.generate(read, sampling, stop)?;
        generated.tokens = prompt.to_vec();
        generated.refills = true;
        Ok(generated)
    }
}

impl<E: Element> Generated<'_, E> {
    fn choose(&mut self) -> Result<usize, GenerateError> {
        if let (true, Some(&last)) = (self.pending, self.tokens.last()) {
            let capacity = self.session.capacity();
            if self.refills && self.session.len() == capacity {
                let start = self.tokens.len().saturating_sub(capacity.div_ceil(2));
                self.session.reset();
                self.session.prefill(&self.tokens[start..])?;
            } else {
                self.session.step(last)?;
            }
        }
        let token = self.sampler.choose(self.session.results(), &self.tokens)?;
        self.tokens.push(token);
        self.pending = true;
        Ok(token)
    }
}

impl<E: Element> Iterator for Generated<'_, E> {
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
