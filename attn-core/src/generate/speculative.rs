//! Speculative decoding: a small model proposes tokens, and a large one checks several at once.
//!
//! A round, with the distributions `q` of the draft and `p` of the target, each behind the sampling options:
//!
//! ```text
//! 1    d[1] ~ q[1], .., d[k] ~ q[k]        k steps of the draft
//! 2    p[1], .., p[k + 1]                  one call of the target, with the token before and all d
//! 3    accept d[i] with probability min(1, p[i](d[i]) / q[i](d[i])), up to the first that is not accepted
//! 4    in its place a token ~ max(0, p[i] - q[i]), normalised; behind k accepted ones a token ~ p[k + 1]
//! 5    both sessions forget what was not accepted
//! ```
//!
//! Leviathan et al., "Fast inference from transformers via speculative decoding" (2023), appendix A.1, shows that the tokens are distributed
//! as those of `p` alone.

use std::collections::VecDeque;

use super::{
    GenerateError, Sampler, Sampling, Session, distribution::Distribution, sampling::check_options,
};
use crate::Element;

/// How many tokens a draft proposed, and how many of them were accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acceptance {
    /// The number of tokens that the draft proposed.
    pub drafted: usize,
    /// The number of those that the target accepted.
    pub accepted: usize,
    /// The number of calls of the target.
    pub rounds: usize,
}

impl Acceptance {
    /// The fraction of the proposed tokens that were accepted, or 0 if there are none.
    #[doc(alias = "acceptance_rate")]
    pub fn rate(&self) -> f64 {
        self.accepted as f64 / self.drafted.max(1) as f64
    }
}

/// An iterator of the tokens of a target model, with a draft: [`Session::generate_with_draft`].
pub struct Speculative<'s, E: Element> {
    target: &'s mut Session<E>,
    draft: &'s mut Session<E>,
    k: usize,
    sampler: Sampler,
    stop: &'s [usize],
    /// The tokens from the prompt on. Each session has read a part of them.
    tokens: Vec<usize>,
    /// The number of tokens of the prompt.
    prompt: usize,
    /// The lengths of the sessions without `tokens`.
    before: [usize; 2],
    /// The tokens that are chosen and not yet returned: the last of `tokens`.
    chosen: VecDeque<usize>,
    acceptance: Acceptance,
    ended: bool,
}

impl<E: Element> Session<E> {
    /// As [`generate`](Self::generate), with a smaller model that proposes `k` tokens at a time, which this one checks in one call. The tokens
    /// have the distribution that they have without it; greedy ones are the same. It pays if a call with `k + 1` tokens costs little more
    /// than one with a token, and if the draft is often right: [`acceptance`](Speculative::acceptance) says how often.
    ///
    /// A mask with a window evicts keys, so that fewer tokens can be taken back: if one of the models has such a cache, a round has at most
    /// 63 proposed tokens, whatever `k` is.
    ///
    /// Both sessions continue by the prompt, and need the same tokens before it. Behind the iterator, this one has
    /// read all returned tokens except the last one, and the draft no more.
    ///
    /// ```
    /// use attn::{generate::Sampling, prelude::*};
    ///
    /// model! {
    ///     struct Large<vocab = 65, d_model = 32>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let mut x = embedding::<vocab, d_model>(tokens);
    ///         repeat 4 {
    ///             x += attention::<heads = 2, mask = causal, position = rope>(layer_norm(x));
    ///         }
    ///         linear::<vocab>(layer_norm(x))
    ///     }
    /// }
    ///
    /// model! {
    ///     struct Small<vocab = 65, d_model = 8>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let dev = AutoDevice::default();
    /// let large = dev.build_module::<Large, f32>();
    /// let small = dev.build_module::<Small, f32>();
    /// let (mut target, mut draft) = (large.session(50)?, small.session(50)?);
    ///
    /// let greedy = Sampling::with_temperature(0.0);
    /// let mut tokens = target.generate_with_draft(&mut draft, 4, &[3, 1, 4], greedy.clone(), &[])?;
    /// let fast: Vec<usize> = tokens.by_ref().take(20).collect::<Result<_, _>>()?;
    /// println!("{:.0}% of the proposed tokens were accepted", 100.0 * tokens.acceptance().rate());
    /// # drop(tokens);
    ///
    /// let mut alone = large.session(50)?;
    /// let slow: Vec<usize> = alone.generate(&[3, 1, 4], greedy, &[])?.take(20).collect::<Result<_, _>>()?;
    /// assert_eq!(fast, slow);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Several tokens at once are rounded differently from one by one, as in all libraries: of two logits that differ by a rounding error, the
    /// other may win.
    ///
    /// `transformers`: `model.generate(.., assistant_model=draft)` with `num_assistant_tokens`; vLLM: `speculative_config`.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), for both models; [`SamplingError::Option`](super::SamplingError::Option) if `k` is 0;
    /// [`GenerateError::Draft`] if the models have different vocabularies; and [`SessionError::Truncate`](super::SessionError::Truncate) if one
    /// has a state that cannot go back, as a `scan` or a causal convolution. After an error of a session, neither has changed.
    #[doc(alias(
        "assistant_model",
        "assisted_decoding",
        "speculative_decoding",
        "num_assistant_tokens"
    ))]
    pub fn generate_with_draft<'s>(
        &'s mut self,
        draft: &'s mut Session<E>,
        k: usize,
        prompt: &[usize],
        sampling: Sampling,
        stop: &'s [usize],
    ) -> Result<Speculative<'s, E>, GenerateError> {
        check_options(&[("k", k as f64, k > 0, "1 or more")])?;
        let mut sampler = Sampler::new(sampling)?;
        let [of_target, of_draft] = [&*self, &*draft].map(|session| session.results().len());
        if of_target != of_draft {
            return Err(GenerateError::Draft {
                target: of_target,
                draft: of_draft,
            });
        }
        for session in [&*self, &*draft] {
            session.check(prompt)?;
            session.can_go_back(prompt.len())?;
        }
        let k = k.min(self.most_to_take_back().min(draft.most_to_take_back()));
        self.prefill(prompt)?;
        draft.prefill(prompt)?;
        let mut tokens = prompt.to_vec();
        let first = sampler.choose(self.results(), &tokens)?;
        let before = [&*self, &*draft].map(|session| session.len() - prompt.len());
        tokens.push(first);
        Ok(Speculative {
            target: self,
            draft,
            k,
            sampler,
            stop,
            tokens,
            prompt: prompt.len(),
            before,
            chosen: VecDeque::from([first]),
            acceptance: Acceptance::default(),
            ended: false,
        })
    }
}

impl<E: Element> Speculative<'_, E> {
    /// How many tokens the draft proposed so far, and how many of them were accepted.
    pub fn acceptance(&self) -> Acceptance {
        self.acceptance
    }

    /// The number of tokens that fit both sessions behind the next one.
    fn room(&self) -> usize {
        let [of_target, of_draft] = self.before;
        let read = self.tokens.len();
        let target = self.target.capacity().saturating_sub(of_target + read);
        // The draft does not read the last token that it proposes.
        let draft = (self.draft.capacity() + 1).saturating_sub(of_draft + read);
        target.min(draft)
    }

    /// Proposes tokens, which are appended, and returns their distributions.
    fn propose(&mut self, count: usize) -> Result<Vec<Distribution>, GenerateError> {
        let mut proposed = Vec::with_capacity(count);
        for _ in 0..count {
            let read = self.draft.len() - self.before[1];
            let results = self.draft.prefill(&self.tokens[read..])?;
            let odds = self
                .sampler
                .distribution(results, &self.tokens, |_, _| ())?;
            let odds = odds.normalized();
            self.tokens.push(self.sampler.draw(&odds));
            proposed.push(odds);
        }
        Ok(proposed)
    }

    /// Appends the tokens that the target accepts, and one more.
    fn round(&mut self) -> Result<(), GenerateError> {
        let first = self.tokens.len();
        let proposed = self.propose(self.k.min(self.room()))?;
        let read = self.target.len() - self.before[0];
        let results = self.target.prefill_all(&self.tokens[read..])?;
        let drafts = self.tokens.split_off(first);
        self.acceptance.rounds += 1;
        self.acceptance.drafted += drafts.len();
        let rows = first - 1 - read..;
        for (place, row) in rows.enumerate() {
            let odds = self
                .sampler
                .distribution(results.row(row), &self.tokens, |_, _| ())?;
            let odds = odds.normalized();
            let draft = drafts.get(place).zip(proposed.get(place));
            let (token, is_accepted) = match draft {
                None => (self.sampler.draw(&odds), false),
                Some((&draft, by)) => {
                    let ratio = odds.probability(draft) / by.probability(draft);
                    if ratio >= 1.0 || self.sampler.uniform() < ratio {
                        (draft, true)
                    } else {
                        (self.sampler.draw(&odds.without(by)), false)
                    }
                }
            };
            self.tokens.push(token);
            self.chosen.push_back(token);
            if !is_accepted {
                self.acceptance.accepted += place;
                break;
            }
        }
        self.forget(self.tokens.len() - 1)
    }

    /// Both sessions keep at most so many of the tokens.
    fn forget(&mut self, tokens: usize) -> Result<(), GenerateError> {
        for (session, before) in [&mut *self.target, &mut *self.draft]
            .into_iter()
            .zip(self.before)
        {
            session.truncate(session.len().min(before + tokens))?;
        }
        Ok(())
    }
}

impl<E: Element> Iterator for Speculative<'_, E> {
    type Item = Result<usize, GenerateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let known = self.tokens.len();
        if self.chosen.is_empty()
            && let Err(error) = self.round()
        {
            self.tokens.truncate(known);
            self.chosen.clear();
            self.ended = true;
            return Some(Err(error));
        }
        let token = self.chosen.pop_front()?;
        self.ended = self.stop.contains(&token);
        if self.ended {
            self.chosen.push_front(token);
        }
        (!self.ended).then_some(Ok(token))
    }
}

impl<E: Element> Drop for Speculative<'_, E> {
    /// The sessions forget the tokens that were not returned, and the last one of those that were, which no session has read without a draft,
    /// either.
    fn drop(&mut self) {
        let is_unread = !self.ended && !self.chosen.is_empty();
        let returned = self.tokens.len() - self.chosen.len() - usize::from(is_unread);
        // Windows keep the tokens of the last rounds.
        self.forget(returned.max(self.prompt)).ok();
    }
}
