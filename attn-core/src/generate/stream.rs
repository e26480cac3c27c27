//! A stream of generated tokens.

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
}

/// An iterator of generated tokens: [`Session::generate`].
///
/// A token is computed on demand. The iterator ends before the first token of `stop`, and after an error.
pub struct Generated<'s, E: Element> {
    session: &'s mut Session<E>,
    sampler: Sampler,
    stop: &'s [usize],
    /// All tokens so far. If `pending`, the last one has not been given to the session.
    tokens: Vec<usize>,
    pending: bool,
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
            ended: false,
        })
    }
}

impl<E: Element> Generated<'_, E> {
    fn choose(&mut self) -> Result<usize, GenerateError> {
        if let (true, Some(&last)) = (self.pending, self.tokens.last()) {
            self.session.step(last)?;
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
