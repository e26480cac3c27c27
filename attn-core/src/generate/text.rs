//! A stream of generated text.

use super::{GenerateError, Generated, Sampling, Session, Unconstrained};
use crate::{
    Element,
    text::{Decoder, StopText, Vocabulary},
};

impl<E: Element> Session<E> {
    /// Continues the sequence by a prompt, and writes on: an iterator of pieces of text. It has no end, [not even at the
    /// capacity](Self::generate_endless), unless [`tokens`](Written::tokens), [`until`](Written::until) or [`until_token`](Written::until_token) give it one.
    ///
    /// Tokens that are not in the vocabulary are excluded.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*, text::Vocabulary};
    ///
    /// model! {
    ///     struct Gpt<vocab = 256, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = Cpu::default().build_module::<Gpt, f32>();
    /// let vocabulary = Vocabulary::characters("to be or not to be")?;
    /// let mut session = model.session(8)?;
    /// for piece in session.write(&vocabulary, "to be", Sampling::default())?.tokens(20) {
    ///     print!("{}", piece?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `pipeline("text-generation", .., streamer=TextStreamer(tokenizer))`.
    ///
    /// # Errors
    /// If the prompt has characters that are not in the vocabulary, if the sequence and the prompt are empty, or if an option has a
    /// meaningless value.
    #[doc(alias("pipeline", "TextStreamer"))]
    pub fn write<'s>(
        &'s mut self,
        vocabulary: &'s Vocabulary,
        prompt: &str,
        mut sampling: Sampling,
    ) -> Result<Written<'s, E>, GenerateError> {
        let count = sampling.vocabulary.unwrap_or(usize::MAX);
        sampling.vocabulary = Some(count.min(vocabulary.len()));
        let prompt = vocabulary.encode(prompt)?;
        Ok(Written {
            tokens: self.generate_endless(&prompt, sampling, &[])?,
            left: usize::MAX,
            decoder: vocabulary.decoder(),
            stop: StopText::new(""),
            ended: false,
        })
    }
}

/// An iterator of pieces of text, none of which is empty: [`Session::write`].
pub struct Written<'s, E: Element, C = Unconstrained> {
    tokens: Generated<'s, E, C>,
    /// The number of tokens that may come.
    left: usize,
    decoder: Decoder<'s>,
    stop: StopText,
    ended: bool,
}

impl<'s, E: Element, C> Written<'s, E, C> {
    /// Ends after so many tokens.
    #[doc(alias = "max_new_tokens")]
    pub fn tokens(mut self, count: usize) -> Self {
        self.left = count;
        self
    }

    /// Ends before this text. What may begin it is [held back](StopText).
    #[doc(alias = "stop_strings")]
    pub fn until(self, stop: &str) -> Self {
        self.until_any(&[stop])
    }

    /// Ends before any of these texts, wherever tokens begin and end in it: before the one that is [complete first](StopText).
    #[doc(alias("stop_strings", "stop"))]
    pub fn until_any(mut self, stops: &[&str]) -> Self {
        self.stop = StopText::any(stops.iter().copied());
        self
    }

    /// Ends before any of these tokens.
    #[doc(alias("eos_token_id", "stop_token_ids"))]
    pub fn until_token(mut self, stop: &'s [usize]) -> Self {
        self.tokens.stop = stop;
        self
    }

    /// Leaves the special tokens of the tokenizer's file out of the text.
    #[doc(alias = "skip_special_tokens")]
    pub fn without_special_tokens(mut self) -> Self {
        self.decoder = self.decoder.without_special_tokens();
        self
    }

    /// Chooses tokens under a constraint: [`Generated::constrain`].
    #[doc(alias("logits_processor", "prefix_allowed_tokens_fn"))]
    pub fn constrain<N>(self, constraint: N) -> Written<'s, E, N>
    where
        N: FnMut(&[usize], &mut [f64]),
    {
        Written {
            tokens: self.tokens.constrain(constraint),
            left: self.left,
            decoder: self.decoder,
            stop: self.stop,
            ended: self.ended,
        }
    }
}

impl<E: Element, C: FnMut(&[usize], &mut [f64])> Written<'_, E, C> {
    /// The text that the next token adds. `None` stands for all tokens.
    fn next_text(&mut self) -> Result<Option<String>, GenerateError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let token = self.tokens.next().transpose()?;
        let token = token.map(|token| self.decoder.push(token)).transpose()?;
        Ok(token.map(|piece| self.stop.push(&piece)))
    }

    /// The text that was held back.
    fn rest(&mut self) -> String {
        let rest = self.decoder.clone().finish();
        self.stop.push(&rest) + &self.stop.clone().finish()
    }
}

impl<E: Element, C: FnMut(&[usize], &mut [f64])> Iterator for Written<'_, E, C> {
    type Item = Result<String, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let text = match self.next_text() {
                Ok(Some(text)) => {
                    self.ended = self.stop.is_reached();
                    text
                }
                Ok(None) => {
                    self.ended = true;
                    self.rest()
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            };
            if !text.is_empty() {
                return Some(Ok(text));
            }
        }
        None
    }
}
