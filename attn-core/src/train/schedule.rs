//! Learning rate schedules.

use std::f64::consts::PI;

use super::algorithm::InvalidSetting;

/// A learning rate for every step of training. The first step is 1.
///
/// PyTorch and Hugging Face count steps from 0: a scheduler such as `get_cosine_schedule_with_warmup` has the rate `rate(step)` before the
/// optimizer's step number `step + 1`, so that its first step has the rate 0 of a warm-up, and each rate comes one step later than here.
/// `LinearLR(start_factor=1 / warm_up, total_iters=warm_up - 1)`, and what follows in a `SequentialLR` from `milestones=[warm_up - 1]` on, has the
/// rates of here.
///
/// ```
/// use attn::train::{Cosine, Noam, Schedule};
///
/// fn rates(schedule: &impl Schedule) -> Vec<f64> {
///     [1, 10, 60, 110].map(|step| schedule.rate(step)).to_vec()
/// }
/// let cosine = Cosine { highest: 1.0, lowest: 0.5, warm_up: 10, steps: 110 };
/// assert_eq!(rates(&cosine), [0.1, 1.0, 0.75, 0.5]);
/// let noam = Noam { d_model: 512, warm_up: 4000, factor: 1.0 };
/// assert!((noam.rate(4000) - (512.0 * 4000.0_f64).powf(-0.5)).abs() < 1e-15);
/// ```
#[doc(alias("lr_scheduler", "LRScheduler"))]
pub trait Schedule {
    /// The rate of a step. Step 0, before training, has the rate of step 1.
    fn rate(&self, step: u64) -> f64;

    /// Checks the settings. A [`Trainer`](super::Trainer) does so in each step.
    ///
    /// # Errors
    /// The first one that is not allowed.
    fn check(&self) -> Result<(), InvalidSetting> {
        Ok(())
    }
}

/// A linear warm-up, then half a cosine wave down to the final rate, which stays.
///
/// ```text
/// highest * step / warm_up                                              up to warm_up
/// lowest + (highest - lowest) (1 + cos(π (step - warm_up) / (steps - warm_up))) / 2    then
/// ```
///
/// Loshchilov and Hutter, "SGDR" (2017), without restarts, with the warm-up of GPT-2. PyTorch: `SequentialLR` of `LinearLR` and
/// `CosineAnnealingLR`; nanoGPT: `get_lr`.
#[doc(alias(
    "CosineAnnealingLR",
    "SequentialLR",
    "get_cosine_schedule_with_warmup",
    "get_lr"
))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// The rate after the warm-up.
    pub highest: f64,
    /// The rate from the last step on.
    pub lowest: f64,
    /// The number of steps of the warm-up.
    pub warm_up: u64,
    /// The total number of steps.
    pub steps: u64,
}

impl Schedule for Cosine {
    fn rate(&self, step: u64) -> f64 {
        let share = share_of(step, self.warm_up, self.steps);
        let wave = 0.5 * (1.0 + (PI * share).cos());
        let fallen = self.lowest + (self.highest - self.lowest) * wave;
        warm(step, self.warm_up, self.highest).unwrap_or(fallen)
    }
}

/// A linear warm-up, then a straight line down to the final rate, which stays.
///
/// ```text
/// highest * step / warm_up                                              up to warm_up
/// highest + (lowest - highest) (step - warm_up) / (steps - warm_up)     then
/// ```
///
/// PyTorch: `SequentialLR` of two `LinearLR`; Hugging Face: `get_linear_schedule_with_warmup`.
///
/// ```
/// use attn::train::{Linear, Schedule};
///
/// let linear = Linear { highest: 1.0, lowest: 0.0, warm_up: 10, steps: 110 };
/// assert_eq!([1, 10, 60, 110, 200].map(|step| linear.rate(step)), [0.1, 1.0, 0.5, 0.0, 0.0]);
/// ```
#[doc(alias("LinearLR", "get_linear_schedule_with_warmup"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// The rate after the warm-up.
    pub highest: f64,
    /// The rate from the last step on.
    pub lowest: f64,
    /// The number of steps of the warm-up.
    pub warm_up: u64,
    /// The total number of steps.
    pub steps: u64,
}

impl Schedule for Linear {
    fn rate(&self, step: u64) -> f64 {
        let Self {
            highest,
            lowest,
            warm_up,
            steps,
        } = *self;
        let share = share_of(step, warm_up, steps);
        warm(step, warm_up, highest).unwrap_or(highest + (lowest - highest) * share)
    }
}

/// A linear warm-up, then one rate.
///
/// Hugging Face: `get_constant_schedule_with_warmup`.
///
/// ```
/// use attn::train::{Constant, Schedule};
///
/// let constant = Constant { rate: 1.0, warm_up: 4 };
/// assert_eq!([0, 1, 3, 4, 100].map(|step| constant.rate(step)), [0.25, 0.25, 0.75, 1.0, 1.0]);
/// ```
#[doc(alias("ConstantLR", "get_constant_schedule_with_warmup"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    /// The rate after the warm-up.
    pub rate: f64,
    /// The number of steps of the warm-up.
    pub warm_up: u64,
}

impl Schedule for Constant {
    fn rate(&self, step: u64) -> f64 {
        warm(step, self.warm_up, self.rate).unwrap_or(self.rate)
    }
}

/// Warm-up, stable, decay: a linear warm-up, then one rate, and in the last steps a straight line down to the final rate.
///
/// Hu et al., "MiniCPM" (2024), section 4, with the linear decay of Hägele et al., "Scaling laws and compute-optimal training beyond
/// fixed training durations" (2024). Hugging Face: `get_wsd_schedule(decay_type="linear")`.
///
/// ```
/// use attn::train::{Schedule, Wsd};
///
/// let wsd = Wsd { highest: 1.0, lowest: 0.0, warm_up: 10, decay: 20, steps: 100 };
/// assert_eq!([5, 10, 80, 90, 100].map(|step| wsd.rate(step)), [0.5, 1.0, 1.0, 0.5, 0.0]);
/// ```
#[doc(alias("get_wsd_schedule", "WarmupStableDecay", "trapezoidal"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wsd {
    /// The rate after the warm-up.
    pub highest: f64,
    /// The rate from the last step on.
    pub lowest: f64,
    /// The number of steps of the warm-up.
    pub warm_up: u64,
    /// The number of steps in which the rate falls.
    pub decay: u64,
    /// The total number of steps.
    pub steps: u64,
}

impl Schedule for Wsd {
    fn rate(&self, step: u64) -> f64 {
        let falls = self.steps.saturating_sub(self.decay).max(self.warm_up);
        let share = share_of(step, falls, self.steps);
        let fallen = self.highest + (self.lowest - self.highest) * share;
        warm(step, self.warm_up, self.highest).unwrap_or(fallen)
    }
}

/// The rate in the warm-up, or `None` after it.
fn warm(step: u64, warm_up: u64, highest: f64) -> Option<f64> {
    let step = step.max(1);
    (step < warm_up).then(|| highest * step as f64 / warm_up as f64)
}

/// How much of the steps from `start` to the last one is done: 0 to 1.
fn share_of(step: u64, start: u64, steps: u64) -> f64 {
    let done = step.max(1).saturating_sub(start);
    let all = steps.saturating_sub(start);
    (done as f64 / all.max(1) as f64).min(1.0)
}

/// A linear warm-up, then a decay with the inverse square root of the step.
///
/// ```text
/// factor * d_model^-0.5 * min(step^-0.5, step * warm_up^-1.5)
/// ```
///
/// Vaswani et al., "Attention is all you need" (2017), section 5.3.
#[doc(alias("NoamOpt", "LambdaLR"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noam {
    /// The width of the model: 1 or more.
    pub d_model: usize,
    /// The number of steps of the warm-up: 1 or more. With 1 there is none.
    pub warm_up: u64,
    /// A factor, which is 1 in the paper.
    pub factor: f64,
}

impl Schedule for Noam {
    fn rate(&self, step: u64) -> f64 {
        let step = step.max(1) as f64;
        let [width, warm_up] = [self.d_model as f64, self.warm_up as f64];
        self.factor * width.powf(-0.5) * step.powf(-0.5).min(step * warm_up.powf(-1.5))
    }

    fn check(&self) -> Result<(), InvalidSetting> {
        let sizes = [
            ("d_model", self.d_model == 0),
            ("warm_up", self.warm_up == 0),
        ];
        match sizes.into_iter().find(|(_, is_zero)| *is_zero) {
            None => Ok(()),
            Some((name, _)) => Err(InvalidSetting {
                name,
                found: 0.0,
                expected: "1 or more",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cosine_schedule_rises_falls_and_stays() {
        let cosine = Cosine {
            highest: 2.0,
            lowest: 0.2,
            warm_up: 4,
            steps: 20,
        };
        let rates: Vec<_> = (0..30).map(|step| cosine.rate(step)).collect();
        assert_eq!(rates[..5], [0.5, 0.5, 1.0, 1.5, 2.0]);
        assert!(rates[4..21].is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!((rates[12] - 1.1).abs() < 1e-12);
        assert!(rates[20..].iter().all(|rate| (rate - 0.2).abs() < 1e-12));
    }

    #[test]
    fn a_warm_up_longer_than_the_training_has_rates_in_range() {
        let cosine = Cosine {
            highest: 1.0,
            lowest: 0.1,
            warm_up: 10,
            steps: 3,
        };
        assert!((1..=30).all(|step| (0.1..=1.0).contains(&cosine.rate(step))));
        let at_once = Cosine {
            warm_up: 0,
            ..cosine
        };
        assert_eq!(at_once.rate(3), 0.1);
    }

    #[test]
    fn a_decay_longer_than_the_training_starts_after_the_warm_up() {
        let wsd = Wsd {
            highest: 1.0,
            lowest: 0.0,
            warm_up: 4,
            decay: 100,
            steps: 8,
        };
        let rates: Vec<_> = (1..=9).map(|step| wsd.rate(step)).collect();
        assert_eq!(rates, [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn noam_has_a_width_and_a_warm_up() {
        let noam = Noam {
            d_model: 4,
            warm_up: 1,
            factor: 1.0,
        };
        assert_eq!([1, 4].map(|step| noam.rate(step)), [0.5, 0.25]);
        let refused = |noam: Noam| noam.check().map_err(|error| error.to_string());
        assert_eq!(refused(noam), Ok(()));
        let no_width = Noam { d_model: 0, ..noam };
        let expected = "`d_model` is 0, but must be 1 or more";
        assert_eq!(refused(no_width), Err(expected.into()));
        // Steps by hand have no rate, either.
        assert_eq!(no_width.rate(3), f64::INFINITY);
        let no_warm_up = Noam { warm_up: 0, ..noam };
        let expected = "`warm_up` is 0, but must be 1 or more";
        assert_eq!(refused(no_warm_up), Err(expected.into()));
    }

    #[test]
    fn noam_is_highest_after_the_warm_up() {
        let noam = Noam {
            d_model: 64,
            warm_up: 100,
            factor: 2.0,
        };
        let rates: Vec<_> = (1..400).map(|step| noam.rate(step)).collect();
        assert!(rates[..100].is_sorted_by(|a, b| a < b));
        assert!(rates[99..].is_sorted_by(|a, b| a > b));
        assert!((rates[99] - 2.0 / 80.0).abs() < 1e-15);
    }
}
