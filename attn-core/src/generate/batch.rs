//! Generation for several prompts at once.

use super::{GenerateError, Sampler, Sampling, SamplingError, SessionError, Sessions};
use crate::Element;

/// An iterator of the tokens of several sequences: [`Sessions::generate`].
///
/// An item has the next token of each sequence, or `None` if it has ended before a token of `stop`. The iterator ends when all have, and after
/// an error.
pub struct GeneratedBatch<'s, E: Element> {
    sessions: &'s mut Sessions<E>,
    stop: &'s [usize],
    sequences: Vec<Continued>,
    ended: bool,
}

/// A sequence that is continued.
struct Continued {
    sampler: Sampler,
    /// The tokens from the prompt on.
    tokens: Vec<usize>,
    /// The tokens that the session has read of these.
    read: usize,
    ended: bool,
}

impl<E: Element> Sessions<E> {
    /// Continues every sequence by a prompt of its own, of any length, and then by the tokens that `sampling` chooses, up to one of `stop`. All
    /// sequences share one read of the weights for each token.
    ///
    /// Every sequence gets the tokens that it gets [alone](super::Session::generate): no padding stands between its tokens, and its positions
    /// count from its own start. The seed of sequence `i` is `sampling.seed + i`, so equal prompts are continued differently.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal, position = rope>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let prompts: [&[usize]; 3] = [&[3, 1, 4, 1, 5], &[9], &[2, 6]];
    /// let mut sessions = model.sessions(3, 50)?;
    /// let greedy = Sampling::with_temperature(0.0);
    /// let texts = sessions.generate(&prompts, greedy.clone(), &[0])?.continuations(20)?;
    ///
    /// let mut alone = model.session(50)?;
    /// let last = alone.generate(prompts[2], greedy, &[0])?.take(20);
    /// assert_eq!(texts[2], last.collect::<Result<Vec<_>, _>>()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `tokenizer(prompts, padding=True)` with `padding_side = "left"`, and `model.generate(**inputs)`, which makes `position_ids`
    /// of the `attention_mask`; vLLM: `llm.generate(prompts)`.
    ///
    /// # Errors
    /// As [`Session::generate`](super::Session::generate), for any of the sequences; or if there are not as many prompts as sequences. The first
    /// sequence without room for its next token ends the batch: the iterator returns its error, [`SessionError::Full`], and no more tokens of
    /// the others.
    #[doc(alias("padding_side", "attention_mask", "position_ids"))]
    pub fn generate<'s>(
        &'s mut self,
        prompts: &[&[usize]],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<GeneratedBatch<'s, E>, GenerateError> {
        let sequences = Continued::of(prompts, &sampling)?;
        self.prefill(prompts)?;
        Ok(GeneratedBatch::new(self, sequences, stop))
    }

    /// Continues one prompt several times: every sequence becomes a fork of the first one behind the prompt, which is read once and whose keys and
    /// values stand in memory once. The seed of sequence `i` is `sampling.seed + i`.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal, position = rope>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let mut sessions = model.sessions(3, 50)?;
    /// let samples = sessions.generate_samples(&[3, 1, 4], Sampling::default(), &[0])?.continuations(20)?;
    /// assert_eq!(samples.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `num_return_sequences` of `generate`; vLLM: `SamplingParams(n=3)`.
    ///
    /// # Errors
    /// As [`Session::generate`](super::Session::generate), for the first sequence; or if there is none. The first sequence without room for its
    /// next token ends the batch, as in [`generate`](Self::generate).
    #[doc(alias("num_return_sequences", "best_of", "n"))]
    pub fn generate_samples<'s>(
        &'s mut self,
        prompt: &[usize],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<GeneratedBatch<'s, E>, GenerateError> {
        let sequences = Continued::of(&vec![prompt; self.lens().len()], &sampling)?;
        self.prefill_samples(prompt)?;
        Ok(GeneratedBatch::new(self, sequences, stop))
    }
}

impl Continued {
    /// A sequence for each prompt, with seeds of their own.
    fn of(prompts: &[&[usize]], sampling: &Sampling) -> Result<Vec<Self>, SamplingError> {
        let sequences = prompts.iter().zip(0..).map(|(prompt, number)| {
            let seed = sampling.seed.wrapping_add(number);
            let sampling = Sampling {
                seed,
                ..sampling.clone()
            };
            Ok(Self {
                sampler: Sampler::new(sampling)?,
                tokens: prompt.to_vec(),
                read: prompt.len(),
                ended: false,
            })
        });
        sequences.collect()
    }
}

impl<'s, E: Element> GeneratedBatch<'s, E> {
    fn new(sessions: &'s mut Sessions<E>, sequences: Vec<Continued>, stop: &'s [usize]) -> Self {
        Self {
            sessions,
            stop,
            sequences,
            ended: false,
        }
    }

    /// The continuations, each of up to `count` tokens.
    ///
    /// # Errors
    /// The first error of the iterator: that of the first sequence without room for its next token, for example.
    #[doc(alias = "max_new_tokens")]
    pub fn continuations(self, count: usize) -> Result<Vec<Vec<usize>>, GenerateError> {
        let mut all = vec![Vec::new(); self.sequences.len()];
        for round in self.take(count) {
            for (tokens, next) in all.iter_mut().zip(round?) {
                tokens.extend(next);
            }
        }
        Ok(all)
    }

    /// Gives the session what it has not read.
    fn read(&mut self) -> Result<(), SessionError> {
        let unread = self.sequences.iter().map(|of| match of.ended {
            true => &[],
            false => &of.tokens[of.read..],
        });
        let unread: Vec<&[usize]> = unread.collect();
        self.sessions.prefill(&unread)?;
        for of in &mut self.sequences {
            of.read = of.tokens.len();
        }
        Ok(())
    }

    fn round(&mut self) -> Result<Vec<Option<usize>>, GenerateError> {
        self.read()?;
        let results = self.sessions.results();
        let sequences = self.sequences.iter_mut().enumerate();
        let next = sequences.map(|(sequence, of)| {
            if of.ended {
                return Ok(None);
            }
            let token = of.sampler.choose(results.row(sequence), &of.tokens)?;
            of.ended = self.stop.contains(&token);
            if !of.ended {
                of.tokens.push(token);
            }
            Ok((!of.ended).then_some(token))
        });
        next.collect()
    }
}

impl<E: Element> Iterator for GeneratedBatch<'_, E> {
    type Item = Result<Vec<Option<usize>>, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let round = self.round();
        let is_over = matches!(&round, Ok(tokens) if tokens.iter().all(Option::is_none));
        self.ended = is_over || round.is_err();
        (!is_over).then_some(round)
    }
}
