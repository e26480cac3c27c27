//! Log probabilities of tokens.

use super::{SamplingError, distribution::likelier, sampling::numbers};
use crate::Element;

/// A token, and how likely the model finds it.
///
/// The probabilities are those of the model, `log_softmax(logits)`, before penalties, constraints, temperature and filters. So they compare
/// texts, whatever the options of the choice.
#[doc(alias("Logprob", "logprobs"))]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// The token.
    pub token: usize,
    /// The natural logarithm of its probability.
    pub log_probability: f64,
    /// The likeliest tokens and the logarithms of their probabilities, the likeliest first, and of equal ones the smaller token. The chosen
    /// token need not be among them.
    pub top: Vec<(usize, f64)>,
}

impl Choice {
    /// A token of which these are the logits, with the `top` likeliest tokens.
    ///
    /// ```
    /// use attn::generate::Choice;
    ///
    /// let choice = Choice::new(1, &[0.0_f32, 0.0, 20.0], 2)?;
    /// assert!((choice.log_probability + 20.0).abs() < 1e-6);
    /// assert_eq!((choice.top[0].0, choice.top[1].0), (2, 0));
    /// # Ok::<(), attn::generate::SamplingError>(())
    /// ```
    ///
    /// PyTorch: `logits.log_softmax(-1)[token]`, and `topk(top)` of it.
    ///
    /// # Errors
    /// If a logit is NaN or ∞, if every one is -∞, or if there is none of the token.
    pub fn new<E: Element>(token: usize, logits: &[E], top: usize) -> Result<Self, SamplingError> {
        let odds = log_softmax(logits)?;
        let Some(&log_probability) = odds.get(token) else {
            return Err(SamplingError::NoLogit {
                token,
                logits: logits.len(),
            });
        };
        let mut all: Vec<(usize, f64)> = odds.into_iter().enumerate().collect();
        if top < all.len() {
            all.select_nth_unstable_by(top, likelier);
            all.truncate(top);
        }
        all.sort_unstable_by(likelier);
        Ok(Self {
            token,
            log_probability,
            top: all,
        })
    }
}

/// The logarithms of the probabilities.
pub(super) fn log_softmax<E: Element>(logits: &[E]) -> Result<Vec<f64>, SamplingError> {
    let logits = numbers(logits)?;
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
    let all = most + sum.ln();
    Ok(logits.into_iter().map(|logit| logit - all).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first() {
        let logits = [1.0, 3.0, -2.0, 3.0, 0.5];
        let sum: f64 = logits.iter().map(|x: &f64| x.exp()).sum();
        let odds = |token: usize| logits[token] - sum.ln();
        for top in 0..7 {
            let choice = Choice::new(2, &logits, top).unwrap();
            assert!((choice.log_probability - odds(2)).abs() < 1e-14);
            let tokens: Vec<usize> = choice.top.iter().map(|(token, _)| *token).collect();
            assert_eq!(tokens, [1, 3, 0, 4, 2][..top.min(5)]);
            let near = |&(token, p): &(usize, f64)| (p - odds(token)).abs() < 1e-14;
            assert!(choice.top.iter().all(near));
        }
    }

    #[test]
    fn tokens_without_a_logit_are_errors() {
        let refused = Choice::new(3, &[0.0_f32; 3], 1).unwrap_err();
        let expected = "token 3 has no logit: there are 3";
        assert_eq!(refused.to_string(), expected);
        let refused = Choice::new(0, &[f64::NAN], 1).unwrap_err();
        assert!(matches!(refused, SamplingError::NotFinite { .. }));
    }
}
