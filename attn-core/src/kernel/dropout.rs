//! Dropout of elements: each becomes 0 with probability `p`, and the others are multiplied by `1 / (1 - p)`.
//!
//! Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.functional.dropout(x, p)`. Which elements are dropped is a function of
//! a seed and of their indices alone, so that no mask is kept: the derivative is the same function of the gradient. And so
//! it needs no pass over memory of its own: [loops](super::loops) drop elements as they read or write them.

use super::Real;
use crate::random::Philox4x32;
use crate::simd::{Kernel, Vector, run};

/// Words of a block of [`Philox4x32`].
const WORDS: usize = 4;
/// The elements that the blocks computed at once serve.
const GROUP: usize = WORDS * Philox4x32::BLOCKS;

/// The elements that are dropped.
///
/// With the word `i % 4` of [`Philox4x32`] of a seed at the counter `[low, high, 0, 0]` of the 64-bit number `i / 4`,
/// element `i` is kept if the word is at least `p * 2^32`. Without a seed all are.
///
/// A dropped number becomes 0, also NaN and infinities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    p: f64,
    seed: Option<u64>,
    /// The index of the first element.
    first: usize,
}

impl Dropout {
    /// No element is dropped.
    pub const NONE: Self = Self {
        p: 0.0,
        seed: None,
        first: 0,
    };

    /// Each with probability `p`, if there is a seed that says which.
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    pub fn new(p: f64, seed: Option<u64>) -> Self {
        assert!((0.0..=1.0).contains(&p), "{p} is not a probability");
        let first = 0;
        Self { p, seed, first }
    }

    /// The same of the elements from this one on.
    #[must_use]
    pub fn from(self, first: usize) -> Self {
        let first = self.first + first;
        Self { first, ..self }
    }

    /// Whether no element is dropped.
    pub fn is_none(self) -> bool {
        self.seed.is_none()
    }

    /// `x = dropout(x)`, from element `first` of an array on.
    pub(super) fn drop_from<E: Real>(self, first: usize, x: &mut [E]) {
        if !self.is_none() {
            let dropout = self;
            let first = self.first + first;
            run(Part { first, x, dropout });
        }
    }
}

/// `x = dropout(x)`, from element `first` of an array on.
struct Part<'a, E> {
    first: usize,
    x: &'a mut [E],
    dropout: Dropout,
}

impl<E: Real> Kernel for Part<'_, E> {
    type Element = E;
    type Output = ();

    /// A plain loop, which the compiler vectorises: there are no vectors of integers.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let dropped = ElementDropout::new(self.dropout);
        let mut start = 0;
        while start < self.x.len() {
            let first = self.first + start;
            let end = self.x.len().min(start + GROUP - first % GROUP);
            dropped.drop_from(first, &mut self.x[start..end]);
            start = end;
        }
    }
}

/// A [`Dropout`], ready to use.
struct ElementDropout<E> {
    random: Option<Philox4x32>,
    /// The largest word whose element is dropped.
    last: u32,
    factor: E,
}

impl<E: Real> ElementDropout<E> {
    #[inline(always)]
    fn new(Dropout { p, seed, .. }: Dropout) -> Self {
        // An integer is below a number if it is below the next integer: so many words are.
        let words = (p * 2f64.powi(32)).ceil() as u64;
        Self {
            random: seed.filter(|_| words > 0).map(Philox4x32::new),
            last: words.saturating_sub(1) as u32,
            factor: E::of_f64(1.0 / (1.0 - p)),
        }
    }

    /// The elements from `first` on, all of them of one group.
    #[inline(always)]
    fn drop_from(&self, first: usize, x: &mut [E]) {
        let Some(random) = &self.random else { return };
        let block = (first / GROUP * Philox4x32::BLOCKS) as u64;
        let words = random.blocks([block as u32, (block >> 32) as u32, 0, 0]);
        let words = &words.as_flattened()[first % GROUP..];
        for (x, &word) in x.iter_mut().zip(words) {
            *x = if word > self.last {
                *x * self.factor
            } else {
                E::ZERO
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    fn dropped<E: Real>(x: &[E], p: f64, seed: u64) -> Vec<E> {
        let mut y = x.to_vec();
        Dropout::new(p, Some(seed)).drop_from(0, &mut y);
        y
    }

    #[test]
    fn the_index_is_the_counter() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([1000]) {
                let x = noise::<f32>(len, 1);
                let random = Philox4x32::new(42);
                let want: Vec<f32> = (0..len)
                    .map(|i| {
                        let word = random.block([(i / 4) as u32, 0, 0, 0])[i % 4];
                        if f64::from(word) < 0.3 * 2f64.powi(32) {
                            0.0
                        } else {
                            x[i] * (1.0 / 0.7) as f32
                        }
                    })
                    .collect();
                assert_eq!(dropped(&x, 0.3, 42), want, "{len} on {isa}");
            }
        });
    }

    #[test]
    fn a_word_at_the_threshold_is_kept() {
        let word = f64::from(Philox4x32::new(42).block([0; 4])[0]);
        assert_ne!(dropped(&[1.0_f32], word / 2f64.powi(32), 42), [0.0]);
        assert_eq!(dropped(&[1.0_f32], (word + 0.5) / 2f64.powi(32), 42), [0.0]);
    }

    #[test]
    fn dropout_drops_a_fraction_of_p_and_keeps_the_mean() {
        const LEN: usize = 100_000;
        for p in [0.1, 0.5, 0.9] {
            let y = dropped(&[1.0_f64; LEN], p, 1);
            let share = y.iter().filter(|&&y| y == 0.0).count() as f64 / LEN as f64;
            // Five standard errors.
            assert!(
                (share - p).abs() < 5.0 * (p * (1.0 - p) / LEN as f64).sqrt(),
                "{p}"
            );
            assert!(y.iter().all(|&y| y == 0.0 || y == 1.0 / (1.0 - p)));
        }
        assert_ne!(
            dropped(&[1.0_f32; 100], 0.5, 1),
            dropped(&[1.0; 100], 0.5, 2)
        );
    }

    #[test]
    fn probabilities_0_and_1_keep_and_drop_all_numbers() {
        let x = noise::<f64>(100, 1);
        assert_eq!(dropped(&x, 0.0, 1), x);
        assert_eq!(dropped(&[f64::INFINITY; 100], 1.0, 1), [0.0; 100]);
        let y = dropped(&[f32::NAN; 1000], 0.5, 1);
        assert!(y.contains(&0.0) && y.iter().any(|y| y.is_nan()));
    }
}
