//! Which weights are dropped.
//!
//! Nothing is kept for the backward pass: a factor is a function of the key and of the place. The generator is that of
//! [`Philox4x32`](crate::random::Philox4x32), for many counters at once.

use super::Dropout;
use super::plan::Head;
use crate::simd::Real;

/// Counters that are encrypted at the same time: the lanes of the widest vector of 64-bit words.
const LANES: usize = 8;

/// Words per counter, each for one of so many neighbouring keys.
const WORDS: usize = 4;

/// [`Dropout`], ready to use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dropper<E> {
    key: u64,
    /// A word below it drops.
    threshold: u64,
    /// The factor of what is not dropped.
    keep: E,
}

impl<E: Real> Dropper<E> {
    pub fn new(dropout: Dropout) -> Self {
        Self {
            key: dropout.key,
            // An integer is below a number if it is below the next integer.
            threshold: (dropout.p * 2f64.powi(32)).ceil() as u64,
            keep: E::of_f64(1.0 / (1.0 - dropout.p)),
        }
    }

    /// The factors of a row of weights, 0 or `1 / (1 - p)`, from the key `first` on, a multiple of 4.
    #[inline(always)]
    pub fn factors(&self, head: Head, query: usize, first: usize, to: &mut [E]) {
        let place = [query, head.h, head.b].map(|i| i as u64);
        for (chunk, to) in to.chunks_mut(WORDS * LANES).enumerate() {
            let words = blocks(self.key, (first / WORDS + chunk * LANES) as u64, place);
            let mut factors = [E::ZERO; WORDS * LANES];
            for (lane, factors) in factors.chunks_exact_mut(WORDS).enumerate() {
                for (words, factor) in words.iter().zip(factors) {
                    *factor = if words[lane] < self.threshold { E::ZERO } else { self.keep };
                }
            }
            to.copy_from_slice(&factors[..to.len()]);
        }
    }
}

/// The words of the counters `[first + lane, place[0], place[1], place[2]]`: Philox4x32-10.
///
/// A word of 32 bits stands in 64, so that the product of two is one instruction; what is above it is noise in between.
#[inline(always)]
fn blocks(key: u64, first: u64, place: [u64; 3]) -> [[u64; LANES]; WORDS] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    const LOW: u64 = u32::MAX as u64;
    let mut c = [[0; LANES], [place[0]; LANES], [place[1]; LANES], [place[2]; LANES]];
    for (lane, c0) in c[0].iter_mut().enumerate() {
        *c0 = first + lane as u64;
    }
    let mut key = [key as u32, (key >> 32) as u32];
    for _ in 0..10 {
        for lane in 0..LANES {
            let p0 = MULTIPLIERS[0] * (c[0][lane] & LOW);
            let p1 = MULTIPLIERS[1] * (c[2][lane] & LOW);
            c[0][lane] = (p1 >> 32) ^ c[1][lane] ^ u64::from(key[0]);
            c[2][lane] = (p0 >> 32) ^ c[3][lane] ^ u64::from(key[1]);
            c[1][lane] = p1;
            c[3][lane] = p0;
        }
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    c.map(|words| words.map(|word| word & LOW))
}
