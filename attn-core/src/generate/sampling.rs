//! Sampling: the choice of the next token.

use super::distribution::Distribution;
use crate::{Element, random::Philox4x32};

/// The options of the choice of a token from logits. A logit of -∞ excludes its token, whoever wrote it: a model, a loop of yours, or a
/// constraint.
///
/// The logits become probabilities, and filters remove tokens, in this order:
///
/// 1. `repetition_penalty`: positive logits of earlier tokens are divided by it, and negative ones are multiplied by it (Keskar
///    et al., "CTRL", 2019);
/// 2. a [constraint](super::Generated::constrain), if there is one, changes logits, or excludes tokens;
/// 3. `temperature`: `p = softmax(logits / temperature)`. At 0 the likeliest token is chosen, the first of equal ones;
/// 4. `top_k`: keeps the likeliest `top_k` tokens (Fan et al. 2018);
/// 5. `top_p`: keeps the fewest of the likeliest tokens whose probabilities have a sum of at least `top_p` (Holtzman et al., "The
///    curious case of neural text degeneration", 2019);
/// 6. `min_p`: keeps the tokens at least `min_p` times as likely as the likeliest (Nguyen et al. 2024).
///
/// The likeliest token that is not excluded always remains. These are arguments of `generate` in `transformers`.
///
/// ```
/// use attn::generate::{Sampler, Sampling};
///
/// let logits = [1.0_f32, 4.0, 3.5, -2.0];
/// let mut greedy = Sampler::new(Sampling::with_temperature(0.0))?;
/// assert_eq!(greedy.choose(&logits, &[])?, 1);
///
/// let two = Sampling { top_k: Some(2), seed: 7, ..Sampling::default() };
/// let (mut sampler, mut same) = (Sampler::new(two.clone())?, Sampler::new(two)?);
/// for _ in 0..20 {
///     let token = sampler.choose(&logits, &[])?;
///     assert!(token == 1 || token == 2);
///     assert_eq!(same.choose(&logits, &[])?, token);
/// }
/// # Ok::<(), attn::generate::SamplingError>(())
/// ```
#[doc(alias("GenerationConfig", "do_sample"))]
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// The temperature: 0 for the likeliest token, 1 for the probabilities of the model.
    pub temperature: f64,
    /// The maximum number of tokens that remain.
    pub top_k: Option<usize>,
    /// The probability that remains, from 0 to 1.
    pub top_p: f64,
    /// The minimum probability of a token, as a fraction of that of the likeliest one, from 0 to 1.
    pub min_p: f64,
    /// Above 1, repeated tokens are less likely.
    pub repetition_penalty: f64,
    /// Tokens from this one on are excluded: for a model with more tokens than are in use.
    pub vocabulary: Option<usize>,
    /// The seed of the choices.
    pub seed: u64,
}

impl Default for Sampling {
    /// Samples from the probabilities of the model.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            vocabulary: None,
            seed: 0,
        }
    }
}

/// Why no token can be chosen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingError {
    /// An option has a meaningless value.
    #[error("`{option}` is {value}, but must be {expected}")]
    Option {
        /// Its name.
        option: &'static str,
        /// The value.
        value: f64,
        /// The values that are allowed.
        expected: &'static str,
    },

    /// A logit is NaN or ∞. One of -∞ excludes its token.
    #[error("the logit of token {token} is {value}: the weights of the model are damaged")]
    NotFinite {
        /// The first such token.
        token: usize,
        /// Its logit.
        value: f64,
    },

    /// A constraint changed a logit to NaN or to infinity.
    #[error(
        "a constraint changed the logit of token {token} to {value}: it must be a number, or -inf to exclude the token"
    )]
    Constraint {
        /// The first such token.
        token: usize,
        /// The new logit.
        value: f64,
    },

    /// A token is none of those that have a logit.
    #[error("token {token} has no logit: there are {logits}")]
    NoLogit {
        /// The token.
        token: usize,
        /// The number of logits.
        logits: usize,
    },

    /// There are no tokens to choose from: no logits, or every one is -∞, as of a constraint that excludes every token.
    #[error("there are no tokens to choose from")]
    NoTokens,
}

impl Sampling {
    /// Samples with this temperature, and the other options as by default.
    pub fn with_temperature(temperature: f64) -> Self {
        Self {
            temperature,
            ..Self::default()
        }
    }

    fn check(&self) -> Result<(), SamplingError> {
        let Self {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            ..
        } = *self;
        let share = 0.0..=1.0;
        let not_negative = temperature.is_finite() && temperature >= 0.0;
        let positive = repetition_penalty.is_normal() && repetition_penalty > 0.0;
        let rules = [
            (
                "temperature",
                temperature,
                not_negative,
                "finite and not negative",
            ),
            (
                "top_k",
                top_k.unwrap_or(1) as f64,
                top_k != Some(0),
                "1 or more",
            ),
            ("top_p", top_p, share.contains(&top_p), "from 0 to 1"),
            ("min_p", min_p, share.contains(&min_p), "from 0 to 1"),
            (
                "repetition_penalty",
                repetition_penalty,
                positive,
                "finite and greater than 0, and not subnormal",
            ),
        ];
        check_options(&rules)
    }
}

/// Returns the first option whose rule does not hold as an error. An option has a name, a value, whether its rule holds, and the
/// rule's text.
pub(super) fn check_options(
    rules: &[(&'static str, f64, bool, &'static str)],
) -> Result<(), SamplingError> {
    match rules.iter().find(|(_, _, holds, _)| !holds) {
        Some(&(option, value, _, expected)) => Err(SamplingError::Option {
            option,
            value,
            expected,
        }),
        None => Ok(()),
    }
}

/// Chooses one token after the other.
#[doc(alias = "multinomial")]
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// The number of choices so far.
    choices: u64,
}

impl Sampler {
    /// A sampler with these options.
    ///
    /// # Errors
    /// [`SamplingError::Option`]
    pub fn new(sampling: Sampling) -> Result<Self, SamplingError> {
        sampling.check()?;
        Ok(Self {
            sampling,
            choices: 0,
        })
    }

    /// Chooses the next token. `before` has the earlier tokens.
    ///
    /// # Errors
    /// If a logit is NaN or ∞, or if every one is -∞, or there is none.
    pub fn choose<E: Element>(
        &mut self,
        logits: &[E],
        before: &[usize],
    ) -> Result<usize, SamplingError> {
        self.choose_where(logits, before, |_, _| ())
    }

    /// As [`choose`](Self::choose), under a constraint: it is called with the earlier tokens and the logits, and may change logits, to -∞ to
    /// exclude a token.
    ///
    /// ```
    /// use attn::generate::{Sampler, Sampling};
    ///
    /// let mut sampler = Sampler::new(Sampling::default())?;
    /// let even = |_: &[usize], logits: &mut [f64]| {
    ///     logits.iter_mut().skip(1).step_by(2).for_each(|logit| *logit = f64::NEG_INFINITY);
    /// };
    /// assert_eq!(sampler.choose_where(&[0.0_f32, 9.0], &[], even)?, 0);
    /// # Ok::<(), attn::generate::SamplingError>(())
    /// ```
    ///
    /// `transformers`: a `LogitsProcessor`, or `prefix_allowed_tokens_fn`.
    ///
    /// # Errors
    /// If a logit is NaN or ∞, before the constraint or behind it, or if every token is excluded.
    #[doc(alias("LogitsProcessor", "prefix_allowed_tokens_fn"))]
    pub fn choose_where<E: Element>(
        &mut self,
        logits: &[E],
        before: &[usize],
        constraint: impl FnMut(&[usize], &mut [f64]),
    ) -> Result<usize, SamplingError> {
        let left = self.distribution(logits, before, constraint)?;
        Ok(self.draw(&left))
    }

    /// The tokens that may be chosen, and their probabilities. Their sum may be below 1.
    pub(super) fn distribution<E: Element>(
        &self,
        logits: &[E],
        before: &[usize],
        mut constraint: impl FnMut(&[usize], &mut [f64]),
    ) -> Result<Distribution, SamplingError> {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            ..
        } = self.sampling;
        let mut logits = numbers(self.known(logits))?;
        penalize(&mut logits, before, repetition_penalty);
        constraint(before, &mut logits);
        check_logits(&logits, |token, value| SamplingError::Constraint {
            token,
            value,
        })?;
        if temperature == 0.0 {
            return Ok(Distribution::certain(likeliest(&logits)));
        }
        let mut left = Distribution::softmax(&logits, temperature);
        left.keep_most(top_k.unwrap_or(usize::MAX));
        left.keep_sum(top_p);
        left.keep_share(min_p);
        Ok(left)
    }

    /// Draws one of the tokens.
    pub(super) fn draw(&mut self, of: &Distribution) -> usize {
        match of.only() {
            Some(token) => token,
            None => of.clone().draw(self.uniform()),
        }
    }

    /// The logits of the tokens that are in use.
    pub(super) fn known<'l, E>(&self, logits: &'l [E]) -> &'l [E] {
        known(logits, self.sampling.vocabulary)
    }

    /// A uniformly distributed number in [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        let choice = self.choices;
        self.choices += 1;
        let counter = [choice as u32, (choice >> 32) as u32, 0, 0];
        let [a, b, ..] = Philox4x32::new(self.sampling.seed).block(counter);
        let bits = (u64::from(a) << 32 | u64::from(b)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }
}

/// The logits of the tokens before `vocabulary`, or of all.
pub(super) fn known<E>(logits: &[E], vocabulary: Option<usize>) -> &[E] {
    let known = vocabulary.unwrap_or(logits.len());
    &logits[..known.min(logits.len())]
}

/// The logits as `f64`.
///
/// # Errors
/// As [`check_logits`].
pub(super) fn numbers<E: Element>(logits: &[E]) -> Result<Vec<f64>, SamplingError> {
    let logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
    check_logits(&logits, |token, value| SamplingError::NotFinite {
        token,
        value,
    })?;
    Ok(logits)
}

/// Checks that logits are numbers, or -∞ for an excluded token, and that a token is left.
///
/// # Errors
/// `wrong` of the first one that is NaN or ∞, with its token; [`SamplingError::NoTokens`].
fn check_logits(
    logits: &[f64],
    wrong: impl FnOnce(usize, f64) -> SamplingError,
) -> Result<(), SamplingError> {
    let is_wrong = |logit: &f64| logit.is_nan() || *logit == f64::INFINITY;
    if let Some(token) = logits.iter().position(is_wrong) {
        return Err(wrong(token, logits[token]));
    }
    match logits.iter().any(|logit| logit.is_finite()) {
        true => Ok(()),
        false => Err(SamplingError::NoTokens),
    }
}

/// Applies the penalty once to each token, however often it occurred. Excluded ones stay so.
fn penalize(logits: &mut [f64], before: &[usize], penalty: f64) {
    if penalty == 1.0 {
        return;
    }
    let mut seen = vec![false; logits.len()];
    for &token in before {
        if let Some(seen) = seen.get_mut(token) {
            *seen = true;
        }
    }
    let seen = logits.iter_mut().zip(seen);
    for (logit, _) in seen.filter(|(logit, seen)| *seen && logit.is_finite()) {
        let penalized = if *logit > 0.0 {
            *logit / penalty
        } else {
            *logit * penalty
        };
        // The difference of two infinities would be NaN.
        *logit = penalized.clamp(f64::MIN, f64::MAX);
    }
}

fn likeliest(logits: &[f64]) -> usize {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    best
}

#[cfg(test)]
mod tests;
