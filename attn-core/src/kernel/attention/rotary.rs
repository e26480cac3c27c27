//! The frequencies of rotary embeddings, and their scaling for sequences longer than those of the training.
//!
//! Su et al., "RoFormer" (2021); the scaled frequencies are those of `modeling_rope_utils` of the library `transformers`.

use std::f64::consts::TAU;

/// A rotary embedding. The pair `i` of the first `dims` coordinates of a vector is rotated by its position times the frequency `i`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rotary {
    /// The number of coordinates that are rotated. It is even.
    pub dims: usize,
    /// The base of the frequencies.
    pub theta: f64,
    /// How the frequencies differ from `theta^(-2 i / dims)`.
    pub scaling: RopeScaling,
    /// Whether a pair are the neighbours `(x[2 i], x[2 i + 1])`, as in GPT-J, and not `(x[i], x[i + dims / 2])`, as in GPT-NeoX and Llama.
    pub interleaved: bool,
}

/// The scaling of frequencies `f`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// The angles are not changed.
    None,
    /// `f / factor` (Chen et al. 2023, "position interpolation").
    Linear {
        /// How much longer sequences are.
        factor: f64,
    },
    /// With the base `theta * factor^(dims / (dims - 2))` ("NTK-aware" scaling).
    Ntk {
        /// How much longer sequences are.
        factor: f64,
    },
    /// [`Ntk`](Self::Ntk) with the factor `factor * len / original_max_len - (factor - 1)`, for a sequence longer than `original_max_len`.
    DynamicNtk {
        /// How much the base grows with the length.
        factor: f64,
        /// The longest sequence of the training.
        original_max_len: usize,
    },
    /// `f / factor` for long waves, `f` for short ones, and a mean of both between them (Llama 3.1).
    Llama3 {
        /// How much longer sequences are.
        factor: f64,
        /// Waves that fit `original_max_len` fewer times are long.
        low_freq_factor: f64,
        /// Waves that fit `original_max_len` more times are short.
        high_freq_factor: f64,
        /// The longest sequence of the training.
        original_max_len: usize,
    },
    /// `f / factor` for pairs that rotate rarely, `f` for those that rotate often, and a mean of both between them; vectors are longer by a
    /// factor (Peng et al. 2023, "YaRN").
    Yarn {
        /// How much longer sequences are.
        factor: f64,
        /// The longest sequence of the training.
        original_max_len: usize,
        /// Pairs that rotate more often in `original_max_len` positions are not scaled.
        beta_fast: f64,
        /// Pairs that rotate less often in `original_max_len` positions are scaled.
        beta_slow: f64,
        /// The factor of the rotated coordinates; by the formula of the paper if it is `None`.
        attention_factor: Option<f64>,
        /// The factor of `ln(factor)` in that formula, for a quotient with `mscale_all_dim`.
        mscale: Option<f64>,
        /// The same factor of the divisor.
        mscale_all_dim: Option<f64>,
        /// Whether the first and the last pair between are whole numbers.
        truncate: bool,
    },
    /// `f / short_factor[i]` in a sequence of at most `original_max_len` tokens, and `f / long_factor[i]` in a longer one, with a number for every
    /// pair; vectors are longer by a factor (Ding et al. 2024, "LongRoPE").
    LongRope {
        /// The divisors in a short sequence.
        short_factor: &'static [f64],
        /// The divisors in a long sequence.
        long_factor: &'static [f64],
        /// How much longer sequences are.
        factor: f64,
        /// The longest sequence of the training.
        original_max_len: usize,
        /// The factor of the rotated coordinates; `sqrt(1 + ln(factor) / ln(original_max_len))` if it is `None`.
        attention_factor: Option<f64>,
    },
}

impl Rotary {
    /// The number of pairs.
    pub fn pairs(&self) -> usize {
        self.dims / 2
    }

    /// The same for a sequence of this length: without a scaling that depends on it.
    pub fn for_len(mut self, len: usize) -> Self {
        let factor = match self.scaling {
            RopeScaling::LongRope {
                ref mut short_factor,
                ref mut long_factor,
                original_max_len,
                ..
            } => {
                match len <= original_max_len {
                    true => *long_factor = *short_factor,
                    false => *short_factor = *long_factor,
                }
                return self;
            }
            RopeScaling::Ntk { factor } => factor,
            RopeScaling::DynamicNtk {
                factor,
                original_max_len,
            } => {
                let len = len.max(original_max_len) as f64;
                factor * len / original_max_len as f64 - (factor - 1.0)
            }
            _ => return self,
        };
        let dims = self.dims as f64;
        // The only pair of two coordinates has the frequency 1 for any base.
        let theta = match self.dims {
            0..=2 => self.theta,
            _ => self.theta * factor.powf(dims / (dims - 2.0)),
        };
        Self {
            theta,
            scaling: RopeScaling::None,
            ..self
        }
    }

    /// The frequency of every pair, and the factor of rotated coordinates. A scaling that depends on the length is that of a short sequence:
    /// see [`for_len`](Self::for_len).
    pub fn frequencies(&self) -> (Vec<f64>, f64) {
        let rotary = self.for_len(0);
        let dims = rotary.dims as f64;
        let frequencies = (0..rotary.pairs()).map(|i| rotary.theta.powf(-2.0 * i as f64 / dims));
        let frequencies: Vec<f64> = frequencies.collect();
        rotary.scaled(frequencies)
    }

    fn scaled(&self, mut frequencies: Vec<f64>) -> (Vec<f64>, f64) {
        let mut magnitude = 1.0;
        match self.scaling {
            RopeScaling::None | RopeScaling::Ntk { .. } | RopeScaling::DynamicNtk { .. } => {}
            RopeScaling::Linear { factor } => {
                frequencies.iter_mut().for_each(|f| *f /= factor);
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_len,
            } => {
                for f in &mut frequencies {
                    let waves = original_max_len as f64 * *f / TAU;
                    *f *= between(1.0 / factor, 1.0, (waves - low) / (high - low));
                }
            }
            RopeScaling::Yarn {
                factor,
                attention_factor,
                mscale,
                mscale_all_dim,
                ..
            } => {
                let [first, last] = self.yarn_ramp();
                for (i, f) in frequencies.iter_mut().enumerate() {
                    *f *= between(1.0, 1.0 / factor, (i as f64 - first) / (last - first));
                }
                let formula = |scale: f64| match factor <= 1.0 {
                    true => 1.0,
                    false => 0.1 * scale * factor.ln() + 1.0,
                };
                magnitude = attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
                    (Some(scale), Some(all)) if scale != 0.0 && all != 0.0 => {
                        formula(scale) / formula(all)
                    }
                    _ => formula(1.0),
                });
            }
            RopeScaling::LongRope {
                short_factor: divisors,
                factor,
                original_max_len,
                attention_factor,
                ..
            } => {
                let pairs = frequencies.iter_mut().zip(divisors);
                pairs.for_each(|(f, divisor)| *f /= divisor);
                magnitude = attention_factor.unwrap_or_else(|| match factor <= 1.0 {
                    true => 1.0,
                    false => (1.0 + factor.ln() / (original_max_len as f64).ln()).sqrt(),
                });
            }
        }
        (frequencies, magnitude)
    }

    /// The pairs between which [`RopeScaling::Yarn`] goes over from one scale to the other.
    fn yarn_ramp(&self) -> [f64; 2] {
        let RopeScaling::Yarn {
            original_max_len,
            beta_fast,
            beta_slow,
            truncate,
            ..
        } = self.scaling
        else {
            return [0.0, 1.0];
        };
        let dims = self.dims as f64;
        // The pair that rotates so many times.
        let pair = |rotations: f64| {
            let positions = original_max_len as f64 / (rotations * TAU);
            dims * positions.ln() / (2.0 * self.theta.ln())
        };
        let (mut first, mut last) = (pair(beta_fast), pair(beta_slow));
        if truncate {
            (first, last) = (first.floor(), last.ceil());
        }
        let (first, last) = (first.max(0.0), last.min(dims - 1.0));
        match first == last {
            true => [first, last + 0.001],
            false => [first, last],
        }
    }
}

/// `from` where `share` is at most 0, `to` where it is at least 1.
fn between(from: f64, to: f64, share: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    (1.0 - share) * from + share * to
}
