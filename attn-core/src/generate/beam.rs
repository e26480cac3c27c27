//! Beam search: the likeliest continuations.

use super::{
    GenerateError, SamplingError, Session,
    choice::log_softmax,
    sampling::{check_options, known},
};
use crate::Element;

/// The options of a beam search.
#[doc(alias = "num_beams")]
#[derive(Clone, Debug, PartialEq)]
pub struct BeamSearch<'a> {
    /// The number of continuations that are extended at a time.
    pub beams: usize,
    /// The maximum number of tokens of a continuation.
    pub tokens: usize,
    /// The score of a continuation is the logarithm of its probability, divided by its number of tokens to this power. A power
    /// above 0 compensates longer ones.
    pub length_penalty: f64,
    /// A continuation ends with one of these tokens.
    pub stop: &'a [usize],
    /// Tokens from this one on are excluded: for a model with more tokens than are in use.
    pub vocabulary: Option<usize>,
}

impl Default for BeamSearch<'_> {
    /// Four continuations of 20 tokens.
    fn default() -> Self {
        Self {
            beams: 4,
            tokens: 20,
            length_penalty: 1.0,
            stop: &[],
            vocabulary: None,
        }
    }
}

/// A continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// Its tokens, without the prompt. The last one is the stop token, if it ended with one.
    pub tokens: Vec<usize>,
    /// The logarithm of its probability.
    pub log_probability: f64,
    /// The score by which continuations are compared.
    pub score: f64,
}

/// An unfinished continuation. Its last token has not been given to the session.
struct ActiveBeam<E: Element> {
    session: Session<E>,
    tokens: Vec<usize>,
    log_probability: f64,
}

impl<E: Element> Session<E> {
    /// The likeliest continuations of the sequence and a prompt, best first: one per beam, or fewer if there are no more. The
    /// session itself does not change. The beams are [forks](Self::fork), which share what they have in common.
    ///
    /// In every round each continuation is extended by every token, and the likeliest of the results are kept. The search ends when as many
    /// continuations have ended as there are beams and none of the others has a better score so far, or where the session is full. This finds
    /// the best of all continuations only if there are enough beams. One beam is the greedy choice.
    ///
    /// The results of a token, `[vocab]`, are the logits of the next one.
    ///
    /// `transformers`: `model.generate(prompt, num_beams=beams, early_stopping=False)`.
    ///
    /// # Errors
    /// [`SamplingError::Option`] if there are no beams, or if the length penalty is not finite; the errors of [`prefill`](Self::prefill), for the
    /// prompt; [`SessionError::TooLarge`](super::SessionError::TooLarge) if there is no memory for the tokens of each beam; and
    /// [`SamplingError::NotFinite`] if a result of the model is NaN or ∞. A token whose result is -∞ is in no continuation.
    pub fn beam_search(
        &self,
        prompt: &[usize],
        search: &BeamSearch<'_>,
    ) -> Result<Vec<Beam>, GenerateError> {
        search.check()?;
        let mut session = self.try_fork()?;
        session.prefill(prompt)?;
        let start = ActiveBeam {
            session,
            tokens: Vec::new(),
            log_probability: 0.0,
        };
        let mut open = vec![start];
        let mut ended = Vec::new();
        for round in 0..search.tokens {
            let is_full = |beam: &ActiveBeam<E>| beam.session.len() == beam.session.capacity();
            // None is open if every token that was left ends a continuation.
            let is_done = || open.is_empty() || open.iter().any(is_full);
            if round > 0 && (is_done() || search.is_over(&open, &ended)) {
                break;
            }
            open = extend(open, search, &mut ended)?;
            search.keep_best(&mut ended);
        }
        if !search.is_over(&open, &ended) {
            let unfinished = open.into_iter();
            ended.extend(unfinished.map(|open| search.beam(open.tokens, open.log_probability)));
            search.keep_best(&mut ended);
        }
        Ok(ended)
    }
}

impl BeamSearch<'_> {
    fn check(&self) -> Result<(), SamplingError> {
        let Self {
            beams,
            length_penalty,
            ..
        } = *self;
        let rules = [
            ("beams", beams as f64, beams > 0, "1 or more"),
            (
                "length_penalty",
                length_penalty,
                length_penalty.is_finite(),
                "finite",
            ),
        ];
        check_options(&rules)
    }

    fn beam(&self, tokens: Vec<usize>, log_probability: f64) -> Beam {
        let score = self.score(tokens.len(), log_probability);
        Beam {
            tokens,
            log_probability,
            score,
        }
    }

    fn score(&self, tokens: usize, log_probability: f64) -> f64 {
        log_probability / (tokens.max(1) as f64).powf(self.length_penalty)
    }

    /// The best continuations, in the order of their scores.
    fn keep_best(&self, all: &mut Vec<Beam>) {
        all.sort_by(|a, b| b.score.total_cmp(&a.score));
        all.truncate(self.beams);
    }

    /// Whether all continuations are there, and the open ones are not better.
    fn is_over<E: Element>(&self, open: &[ActiveBeam<E>], ended: &[Beam]) -> bool {
        let Some(worst) = ended.last().filter(|_| ended.len() == self.beams) else {
            return false;
        };
        let score = |beam: &ActiveBeam<E>| self.score(beam.tokens.len(), beam.log_probability);
        open.iter().all(|beam| score(beam) <= worst.score)
    }
}

/// A round: extends the likeliest continuations by one token, and removes those that ended.
fn extend<E: Element>(
    mut open: Vec<ActiveBeam<E>>,
    search: &BeamSearch<'_>,
    ended: &mut Vec<Beam>,
) -> Result<Vec<ActiveBeam<E>>, GenerateError> {
    let mut candidates = Vec::new();
    for (index, beam) in open.iter_mut().enumerate() {
        if let Some(&last) = beam.tokens.last() {
            beam.session.step(last)?;
        }
        let results = known(beam.session.results(), search.vocabulary);
        let odds = log_softmax(results)?.into_iter().enumerate();
        let odds = odds.filter(|(_, odds)| *odds > f64::NEG_INFINITY);
        candidates.extend(odds.map(|(token, odds)| (index, token, beam.log_probability + odds)));
    }
    candidates.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
    let mut next = Vec::new();
    for (rank, (index, token, log_probability)) in candidates.into_iter().enumerate() {
        if next.len() >= search.beams {
            break;
        }
        let mut tokens = open[index].tokens.clone();
        tokens.push(token);
        if !search.stop.contains(&token) {
            next.push(ActiveBeam {
                session: open[index].session.try_fork()?,
                tokens,
                log_probability,
            });
        } else if rank < search.beams {
            ended.push(search.beam(tokens, log_probability));
        }
    }
    Ok(next)
}
