//! Dropout of elements: each becomes 0 with probability `p`, and the others are multiplied by `1 / (1 - p)`.
//!
//! Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.functional.dropout(x, p)`. Which elements fall is a function of
//! a key and of their indices alone, so that no mask is kept: the derivative is the same function of the gradient.

use super::Real;
use super::compiled::compiled;
use super::parallel::{SMALL, for_each};
use crate::random::Philox4x32;
use crate::simd::{Kernel, Vector, run};

/// Words of a block of [`Philox4x32`].
const WORDS: usize = 4;
/// The elements that the blocks computed at once serve.
const GROUP: usize = WORDS * Philox4x32::BLOCKS;

compiled! {
    Drops:

    /// `y = dropout(x)`: with the word `i % 4` of [`Philox4x32`] of this key at the counter `[low, high, 0, 0]` of the 64-bit
    /// number `i / 4`, element `i` is kept if the word is at least `p * 2^32`.
    ///
    /// What is dropped becomes 0 whatever it was, NaN and infinities too.
    ///
    /// # Panics
    /// If the lengths differ, or `p` is not between 0 and 1.
    #[track_caller]
    pub fn dropout<E>(x: &[E], p: f64, key: u64, y: &mut [E]) {
        assert_eq!(x.len(), y.len(), "dropout keeps the length");
        assert!((0.0..=1.0).contains(&p), "{p} is not a probability");
        // An integer is below a number if it is below the next integer. All words are below 2^32.
        let Ok(threshold) = u32::try_from((p * 2f64.powi(32)).ceil() as u64) else {
            return y.fill(E::ZERO);
        };
        let part = SMALL.next_multiple_of(GROUP);
        let parts = x.chunks(part).zip(y.chunks_mut(part)).enumerate();
        for_each(parts, |(index, (x, y))| {
            run(Dropout {
                random: Philox4x32::new(key),
                first_block: (index * part / WORDS) as u64,
                threshold,
                factor: E::of_f64(1.0 / (1.0 - p)),
                x,
                y,
            });
        });
    }
}

struct Dropout<'a, E> {
    random: Philox4x32,
    first_block: u64,
    threshold: u32,
    factor: E,
    x: &'a [E],
    y: &'a mut [E],
}

impl<E: Real> Kernel for Dropout<'_, E> {
    type Element = E;
    type Output = ();

    /// Plain loops, which the compiler vectorises: there are no vectors of integers.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let groups = self.x.chunks(GROUP).zip(self.y.chunks_mut(GROUP));
        for (first, (x, y)) in (self.first_block..).step_by(Philox4x32::BLOCKS).zip(groups) {
            let words = self
                .random
                .blocks([first as u32, (first >> 32) as u32, 0, 0]);
            for ((&x, y), &word) in x.iter().zip(y).zip(words.as_flattened()) {
                let kept = word >= self.threshold;
                *y = if kept { x * self.factor } else { E::ZERO };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    fn dropped<E: crate::kernel::Pooled>(x: &[E], p: f64, key: u64) -> Vec<E> {
        let mut y = vec![E::NAN; x.len()];
        dropout(x, p, key, &mut y);
        y
    }

    #[test]
    fn the_index_is_the_counter() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([SMALL + 5]) {
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
    fn a_share_of_p_is_dropped_and_the_mean_stays() {
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
    fn nothing_and_everything() {
        let x = noise::<f64>(100, 1);
        assert_eq!(dropped(&x, 0.0, 1), x);
        assert_eq!(dropped(&[f64::INFINITY; 100], 1.0, 1), [0.0; 100]);
        let y = dropped(&[f32::NAN; 1000], 0.5, 1);
        assert!(y.contains(&0.0) && y.iter().any(|y| y.is_nan()));
    }

    #[test]
    fn threads_change_no_bit() {
        let x = noise::<f32>(5 * SMALL + 3, 1);
        same_for_all_threads(|| dropped(&x, 0.3, 42));
    }
}
