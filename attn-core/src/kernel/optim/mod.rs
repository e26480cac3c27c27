//! Steps of optimizers, on the slices of parameters.
//!
//! A step reads gradients and updates parameters, and the lists of numbers that an optimizer keeps for each of them. The elementwise ones
//! take any range of numbers: of a parameter, of several, or of a part.

mod adafactor;
mod adamw;
mod lion;
mod muon;
mod schedule_free;
mod sgd;

use super::compiled::compiled;
use super::parallel::{SMALL, for_each};
use super::{Buffer, Real};
use crate::simd::{Kernel, Vector, run};

pub use adafactor::{Adafactor, AdafactorStep, Squares, adafactor_step};
pub use adamw::{AdamW, AdamWStep, adamw_step};
pub use lion::{Lion, LionStep, lion_step};
pub use muon::{Muon, MuonStep, muon_step};
pub use schedule_free::{ScheduleFree, ScheduleFreeStep, interpolate, schedule_free_step};
pub use sgd::{Sgd, SgdStep, sgd_step};

compiled! {
    Norms:

    /// `Σ x²` over all numbers of some vectors, in `f64`. The order of summation depends on their lengths only, and is the same for every instruction set.
    pub fn squared_norm<E>(vectors: &[&[E]]) -> f64 {
        let chunks = vectors.iter().map(|x| x.len().div_ceil(SMALL));
        let mut sums = Buffer::<f64>::uninit(chunks.clone().sum());
        let parts = vectors.iter().flat_map(|x| x.chunks(SMALL));
        for_each(parts.zip(sums.iter_mut()), |(x, sum)| *sum = run(SumOfSquares(x)));
        let mut sums = sums.iter();
        chunks.map(|count| sums.by_ref().take(count).sum::<f64>()).sum()
    }
}

/// 0 in place of a subnormal number, for which a processor takes several times as long.
#[inline(always)]
fn normal_or_zero<V: Vector>(x: V) -> V {
    V::select(x.abs().lt(V::splat(Real::MIN_POSITIVE)), V::zero(), x)
}

struct SumOfSquares<'a, E>(&'a [E]);

impl<E: Real> Kernel for SumOfSquares<'_, E> {
    type Element = E;
    type Output = f64;

    /// A plain loop, which the compiler vectorises: vectors of `f32` and `f64` have different lengths.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> f64 {
        let mut sums = [0.0; 32];
        let (blocks, rest) = self.0.as_chunks();
        for block in blocks {
            add_squares(&mut sums, block);
        }
        let mut last = [E::ZERO; 32];
        last[..rest.len()].copy_from_slice(rest);
        add_squares(&mut sums, &last);
        sums.iter().sum()
    }
}

#[inline(always)]
fn add_squares<E: Real>(sums: &mut [f64; 32], x: &[E; 32]) {
    for (sum, &x) in sums.iter_mut().zip(x) {
        let x: f64 = x.into();
        *sum += x * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;
    use crate::simd::Isa;

    #[test]
    fn squared_norms_neither_overflow_nor_depend_on_vectors() {
        for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
            let x: Vec<f32> = noise::<f32>(len, 1).iter().map(|x| 1e30 * x).collect();
            let want: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
            let norms: Vec<f64> = Isa::available()
                .map(|isa| isa.force(|| squared_norm(&[&x])))
                .collect();
            assert!((norms[0] - want).abs() <= 1e-13 * want, "{len}");
            assert!(
                norms.iter().all(|norm| *norm == norms[0]),
                "{len}: {norms:?}"
            );
        }
    }

    #[test]
    fn norms_have_the_same_bits_for_any_number_of_threads() {
        let x = noise::<f32>(5 * SMALL + 3, 1);
        same_for_all_threads(|| squared_norm(&[&x]));
        let (first, second) = x.split_at(SMALL + 1);
        let apart: f64 = [&[], first, second]
            .map(|x| squared_norm(&[x]))
            .iter()
            .sum();
        same_for_all_threads(|| {
            assert_eq!(squared_norm(&[&[], first, second]), apart);
        });
    }
}
