//! The dropout mask of attention weights.
//!
//! Nothing is saved for the backward pass: a factor is a function of the seed and of the position.

use super::Dropout;
use super::plan::Head;
use crate::random::Philox4x32;
use crate::simd::Real;

/// Words of a block of [`Philox4x32`], one for each of this many consecutive keys.
const WORDS: usize = 4;

/// [`Dropout`] with its threshold and factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropoutMask<E> {
    random: Philox4x32,
    /// A word of at least this keeps its weight. It is at most 2^32, which no word reaches.
    threshold: u64,
    /// The factor of kept weights.
    factor: E,
    /// The number of the first sequence.
    first: usize,
}

impl<E: Real> DropoutMask<E> {
    pub(super) fn new(dropout: Dropout) -> Self {
        Self {
            random: Philox4x32::new(dropout.seed),
            // An integer is below a number if it is below the number rounded up.
            threshold: (dropout.p * 2f64.powi(32)).ceil() as u64,
            factor: E::of_f64(1.0 / (1.0 - dropout.p)),
            first: dropout.first,
        }
    }

    /// The factors of a row of weights, 0 or `1 / (1 - p)`, from the key `first` on, which is a multiple of 4.
    #[inline(always)]
    pub(super) fn factors(&self, head: Head, query: usize, first: usize, to: &mut [E]) {
        let [query, h, b] = [query, head.h, self.first + head.b].map(|i| i as u32);
        for (chunk, to) in to.chunks_mut(WORDS * Philox4x32::BLOCKS).enumerate() {
            let block = first / WORDS + chunk * Philox4x32::BLOCKS;
            let words = self.random.blocks([block as u32, query, h, b]);
            for (&word, factor) in words.as_flattened().iter().zip(to) {
                let kept = u64::from(word) >= self.threshold;
                *factor = if kept { self.factor } else { E::ZERO };
            }
        }
    }
}
