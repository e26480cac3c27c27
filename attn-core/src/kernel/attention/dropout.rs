//! Which weights are dropped.
//!
//! Nothing is kept for the backward pass: a factor is a function of the key and of the place.

use super::Dropout;
use super::plan::Head;
use crate::random::Philox4x32;
use crate::simd::Real;

/// Words of a block of [`Philox4x32`], each for one of so many neighbouring keys.
const WORDS: usize = 4;

/// Blocks that are computed at once, side by side in vectors.
const BLOCKS: usize = 16;

/// [`Dropout`], ready to use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropper<E> {
    random: Philox4x32,
    /// What a word must reach to keep its weight: at most 2^32, which none does.
    threshold: u64,
    /// The factor of what is kept.
    factor: E,
}

impl<E: Real> Dropper<E> {
    pub(super) fn new(dropout: Dropout) -> Self {
        Self {
            random: Philox4x32::new(dropout.key),
            // An integer is below a number if it is below the next integer.
            threshold: (dropout.p * 2f64.powi(32)).ceil() as u64,
            factor: E::of_f64(1.0 / (1.0 - dropout.p)),
        }
    }

    /// The factors of a row of weights, 0 or `1 / (1 - p)`, from the key `first` on, a multiple of 4.
    #[inline(always)]
    pub(super) fn factors(&self, head: Head, query: usize, first: usize, to: &mut [E]) {
        let place = [query, head.h, head.b].map(|i| i as u32);
        for (chunk, to) in to.chunks_mut(WORDS * BLOCKS).enumerate() {
            let words = self.words((first / WORDS + chunk * BLOCKS) as u32, place);
            for (&word, factor) in words.as_flattened().iter().zip(to) {
                let kept = u64::from(word) >= self.threshold;
                *factor = if kept { self.factor } else { E::ZERO };
            }
        }
    }

    /// The words of the counters from `[first, place[0], place[1], place[2]]` on.
    #[inline(always)]
    fn words(&self, first: u32, place: [u32; 3]) -> [[u32; WORDS]; BLOCKS] {
        let mut words = [[0; WORDS]; BLOCKS];
        for (block, words) in (0..).zip(&mut words) {
            *words = self
                .random
                .block([first.wrapping_add(block), place[0], place[1], place[2]]);
        }
        words
    }
}
