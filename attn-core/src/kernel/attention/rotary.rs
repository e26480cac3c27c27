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

    /// Checks the rules of `position = rope(..)`, and that every frequency is a number.
    ///
    /// # Panics
    /// If `theta`, or a number or length of the scaling, is not positive and finite (`mscale` and `mscale_all_dim` may be 0); if a list does not
    /// have a number for every pair; if `low_freq_factor` is not less than `high_freq_factor`, or `beta_slow` than `beta_fast`; if `theta` is 1
    /// with [`Yarn`](RopeScaling::Yarn); or if a frequency, or the factor of rotated coordinates, is not finite:
    /// [`LongRope`](RopeScaling::LongRope) with an `original_max_len` of 1 and no `attention_factor`.
    #[track_caller]
    pub fn check(&self) {
        check_positive("theta", self.theta);
        self.check_scaling();
        let (frequencies, magnitude) = self.frequencies();
        assert!(
            magnitude.is_finite() && frequencies.iter().all(|f| f.is_finite()),
            "rope: {:?} with a theta of {} has frequencies that are not finite",
            self.scaling,
            self.theta
        );
    }

    #[track_caller]
    fn check_scaling(&self) {
        match self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } | RopeScaling::Ntk { factor } => {
                check_positive("factor", factor);
            }
            RopeScaling::DynamicNtk {
                factor,
                original_max_len,
            } => {
                check_positive("factor", factor);
                check_length(original_max_len);
            }
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_len,
            } => {
                check_positive("factor", factor);
                check_length(original_max_len);
                check_less(
                    ("low_freq_factor", low_freq_factor),
                    ("high_freq_factor", high_freq_factor),
                );
            }
            RopeScaling::Yarn {
                factor,
                original_max_len,
                beta_fast,
                beta_slow,
                attention_factor,
                mscale,
                mscale_all_dim,
                truncate: _,
            } => {
                check_positive("factor", factor);
                check_length(original_max_len);
                check_less(("beta_slow", beta_slow), ("beta_fast", beta_fast));
                // The pairs between which the scale changes are quotients by `ln(theta)`.
                assert!(
                    self.theta != 1.0,
                    "rope: `theta` is 1, but must be another number with `yarn`"
                );
                check_positive("attention_factor", attention_factor.unwrap_or(1.0));
                // As in `transformers`, 0 is the same as none.
                let scales = [("mscale", mscale), ("mscale_all_dim", mscale_all_dim)];
                for (name, scale) in scales {
                    if scale != Some(0.0) {
                        check_positive(name, scale.unwrap_or(1.0));
                    }
                }
            }
            RopeScaling::LongRope {
                short_factor,
                long_factor,
                factor,
                original_max_len,
                attention_factor,
            } => {
                check_positive("factor", factor);
                check_length(original_max_len);
                check_positive("attention_factor", attention_factor.unwrap_or(1.0));
                let lists = [("short_factor", short_factor), ("long_factor", long_factor)];
                for (name, list) in lists {
                    let (len, pairs) = (list.len(), self.pairs());
                    assert!(
                        len == pairs,
                        "rope: `{name}` has {len} numbers, but there are {pairs} pairs"
                    );
                    list.iter().for_each(|number| check_positive(name, *number));
                }
            }
        }
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

#[track_caller]
fn check_positive(name: &str, number: f64) {
    assert!(
        number > 0.0 && number.is_finite(),
        "rope: `{name}` is {number}, but must be positive and finite"
    );
}

#[track_caller]
fn check_length(original_max_len: usize) {
    assert!(
        original_max_len > 0,
        "rope: `original_max_len` is 0, but must be 1 or more"
    );
}

/// The first of two positive numbers is less than the second.
#[track_caller]
fn check_less((low, a): (&str, f64), (high, b): (&str, f64)) {
    check_positive(low, a);
    check_positive(high, b);
    assert!(
        a < b,
        "rope: `{low}` is {a}, but must be less than `{high}`, {b}"
    );
}

/// `from` where `share` is at most 0, `to` where it is at least 1.
fn between(from: f64, to: f64, share: f64) -> f64 {
    let share = share.clamp(0.0, 1.0);
    (1.0 - share) * from + share * to
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why four coordinates cannot be rotated, or nothing.
    fn refused(theta: f64, scaling: RopeScaling) -> String {
        let rotary = Rotary {
            dims: 4,
            theta,
            scaling,
            interleaved: false,
        };
        let panicked = std::panic::catch_unwind(|| rotary.check()).err();
        let message = panicked.map(|payload| payload.downcast::<String>());
        message.map_or(String::new(), |message| match message {
            Ok(message) => *message,
            // A message without arguments.
            Err(payload) => payload.downcast::<&str>().unwrap().to_string(),
        })
    }

    fn llama3(low_freq_factor: f64) -> RopeScaling {
        RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor,
            high_freq_factor: 4.0,
            original_max_len: 8192,
        }
    }

    fn yarn() -> RopeScaling {
        RopeScaling::Yarn {
            factor: 4.0,
            original_max_len: 16,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: Some(0.0),
            mscale_all_dim: None,
            truncate: true,
        }
    }

    fn long_rope(short_factor: &'static [f64], original_max_len: usize) -> RopeScaling {
        RopeScaling::LongRope {
            short_factor,
            long_factor: &[2.0, 3.0],
            factor: 4.0,
            original_max_len,
            attention_factor: None,
        }
    }

    #[test]
    fn sound_settings_are_accepted() {
        let dynamic = RopeScaling::DynamicNtk {
            factor: 2.0,
            original_max_len: 16,
        };
        let none = RopeScaling::None;
        for scaling in [
            none,
            dynamic,
            llama3(1.0),
            yarn(),
            long_rope(&[1.0, 1.5], 16),
        ] {
            assert_eq!(refused(10_000.0, scaling), "", "{scaling:?}");
        }
        // All frequencies are 1.
        assert_eq!(refused(1.0, RopeScaling::None), "");
    }

    #[test]
    fn settings_without_a_frequency_for_every_pair_are_refused() {
        let dynamic = RopeScaling::DynamicNtk {
            factor: 2.0,
            original_max_len: 0,
        };
        let linear = RopeScaling::Linear { factor: 0.0 };
        let cases = [
            (0.0, RopeScaling::None, "`theta` is 0"),
            (f64::NAN, RopeScaling::None, "`theta` is NaN"),
            (1e4, linear, "`factor` is 0"),
            (1e4, dynamic, "`original_max_len` is 0"),
            (1e4, llama3(4.0), "must be less than `high_freq_factor`"),
            (1.0, yarn(), "`theta` is 1"),
            (1e4, long_rope(&[1.0], 16), "`short_factor` has 1 numbers"),
            (1e4, long_rope(&[1.0, 0.0], 16), "`short_factor` is 0"),
            (1e4, long_rope(&[1.0, 1.5], 1), "not finite"),
        ];
        for (theta, scaling, reason) in cases {
            let message = refused(theta, scaling);
            assert!(message.contains(reason), "{reason}: {message:?}");
        }
    }
}
