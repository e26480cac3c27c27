//! Numbers of 16 bits on their way to other ranks: bf16, the upper half of an `f32`.

use super::Real;
use super::compiled::compiled;
use crate::simd::{Kernel, Vector, run, widened};

/// The bytes of a number in bf16, the least significant one first.
pub type Bf16 = [u8; 2];

compiled! {
    Rounding:

    /// Rounds each `x + error` to bf16, to the nearest and to the even one of two, and keeps what is missing of the sum as the `error` (1-bit
    /// SGD: Seide et al., 2014). Infinity and NaN stay what they are, and numbers beyond the largest one become infinite; their error is
    /// not finite.
    ///
    /// An `f64` is rounded to `f32` before. The error is what is missing of both.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn round_with_error<E>(x: &[E], error: &mut [E], to: &mut [Bf16]) {
        assert!(x.len() == error.len() && x.len() == to.len(), "as many errors and places as numbers");
        run(Round { x, error, to });
    }

    /// Adds numbers in bf16.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add<E>(x: &[Bf16], to: &mut [E]) {
        assert_eq!(x.len(), to.len(), "as many places as numbers");
        run(Add { x, to });
    }
}

struct Round<'a, E> {
    x: &'a [E],
    error: &'a mut [E],
    to: &'a mut [Bf16],
}

impl<E: Real> Kernel for Round<'_, E> {
    type Element = E;
    type Output = ();

    /// A plain loop, which the compiler vectorises: half as wide numbers need no vectors of their own then.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        for ((&x, error), to) in self.x.iter().zip(self.error).zip(self.to) {
            let sum = x + *error;
            let rounded = nearest(sum.nearest_f32());
            *error = sum - E::of_f64(f64::from(widened(rounded)));
            *to = rounded.to_le_bytes();
        }
    }
}

struct Add<'a, E> {
    x: &'a [Bf16],
    to: &'a mut [E],
}

impl<E: Real> Kernel for Add<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        for (&x, to) in self.x.iter().zip(self.to) {
            *to += E::of_f64(f64::from(widened(u16::from_le_bytes(x))));
        }
    }
}

/// The nearest number in bf16: half of the last place is added, less one unit where the last bit is 0, and what is behind it cut off.
#[inline(always)]
pub(in crate::kernel) fn nearest(x: f32) -> u16 {
    let bits = x.to_bits();
    let is_odd = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + is_odd) >> 16;
    // A NaN may have its bits in the lower half alone.
    let quiet = (bits >> 16) | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::kernel::{Kernels, testing::*};
    use crate::simd::Isa;

    /// Numbers of every exponent, near and at the middle between two of bf16, and what is no number.
    fn awkward() -> Vec<f32> {
        let special = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0xff80_0001),
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
        ];
        let exponents = (0..=255_u32).flat_map(|exponent| {
            let lower = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];
            let upper = [0, 1, 0x3e, 0x7f];
            let both = upper
                .into_iter()
                .flat_map(move |upper| lower.map(move |lower| upper << 16 | lower));
            both.flat_map(move |rest| [0, 1 << 31].map(|sign| sign | exponent << 23 | rest))
        });
        special
            .into_iter()
            .chain(exponents.map(f32::from_bits))
            .collect()
    }

    /// The nearer one of the two numbers beside `x`, by their distances, and the even one where these are the same.
    fn reference(x: f32) -> u16 {
        let value = |bits: u16| match bits & 0x7fff {
            // Behind the largest number is the next power of two.
            0x7f80 => 2.0_f64.powi(128).copysign(x.into()),
            _ => f64::from(f32::from_bits(u32::from(bits) << 16)),
        };
        let near = (x.to_bits() >> 16) as u16;
        if x.is_infinite() {
            return near;
        }
        let distances = [near, near + 1].map(|bits| (value(bits) - f64::from(x)).abs());
        match distances[0].total_cmp(&distances[1]) {
            Ordering::Less => near,
            Ordering::Greater => near + 1,
            Ordering::Equal => near + near % 2,
        }
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_even_one() {
        let x = awkward();
        for isa in Isa::available() {
            isa.force(|| {
                let mut error = vec![0.0; x.len()];
                let mut rounded = vec![[0; 2]; x.len()];
                round_with_error(&x, &mut error, &mut rounded);
                for ((&x, &error), &rounded) in x.iter().zip(&error).zip(&rounded) {
                    let bits = u16::from_le_bytes(rounded);
                    let rounded = widened(bits);
                    if x.is_nan() {
                        assert!(rounded.is_nan() && error.is_nan());
                        continue;
                    }
                    // -0 and the error 0 are 0.
                    assert_eq!(bits, reference(x + 0.0), "{x}");
                    if rounded.is_finite() {
                        assert_eq!(f64::from(rounded) + f64::from(error), f64::from(x));
                    } else {
                        assert!(!error.is_finite());
                    }
                }
            });
        }
    }

    #[test]
    fn any_length_has_the_same_bits_on_every_machine() {
        fn check<E: Real + Kernels + std::fmt::Debug>(make: impl Fn(usize, u64) -> Vec<E>) {
            for len in LENGTHS {
                let (x, error) = (make(len, 1), make(len, 2));
                let mut all = Isa::available().map(|isa| {
                    isa.force(|| {
                        let (mut error, mut to) = (error.clone(), vec![[0; 2]; len]);
                        round_with_error(&x, &mut error, &mut to);
                        let mut sum = x.clone();
                        add(&to, &mut sum);
                        (error, to, sum)
                    })
                });
                let first = all.next().unwrap();
                assert!(all.all(|other| other == first), "{len}");
                let expected = x
                    .iter()
                    .zip(&first.1)
                    .map(|(&x, &to)| x + E::of_f64(widened(u16::from_le_bytes(to)).into()));
                assert_eq!(first.2, expected.collect::<Vec<_>>());
            }
        }
        check::<f32>(noise);
        check::<f64>(noise);
    }

    /// Each number is rounded to 1 alone.
    #[test]
    fn what_is_rounded_off_is_not_lost() {
        let (x, steps) = ([1.0 + 2.0_f32.powi(-10); 3], 1000);
        let (mut error, mut to, mut sum) = ([0.0; 3], [[0; 2]; 3], [0.0_f32; 3]);
        for _ in 0..steps {
            round_with_error(&x, &mut error, &mut to);
            add(&to, &mut sum);
        }
        for (sum, error) in sum.into_iter().zip(error) {
            // The sums of numbers with few digits are exact.
            assert_eq!(sum + error, steps as f32 * x[0]);
            assert!(error.abs() < 2.0_f32.powi(-8));
        }
        assert_eq!(widened(nearest(x[0])), 1.0);
    }
}
