//! The gradients of the planes of scores.

use crate::kernel::Real;

/// Partial sums: as many as the widest vector has lanes.
const LANES: usize = 16;

/// `Σ d[i] factor(i)` over the `d` that are not 0: the gradient of a number that a whole row reads. The order of the
/// additions depends on the length alone.
///
/// ```
/// use attn_core::fused::sum_of_gradients;
///
/// assert_eq!(sum_of_gradients(&[1.0, 2.0, 3.0], |i| 10.0 * i as f32), 80.0);
/// // What is masked may have any factor.
/// assert_eq!(sum_of_gradients(&[0.0, 2.0, 3.0], |i| 1.0 / i as f32), 3.5);
/// ```
#[inline(always)]
pub fn sum_of_gradients<E: Real>(d: &[E], factor: impl Fn(usize) -> E) -> E {
    let mut sums = [E::ZERO; LANES];
    for (chunk, d) in d.chunks(LANES).enumerate() {
        for (lane, (sum, &d)) in sums.iter_mut().zip(d).enumerate() {
            let product = d * factor(chunk * LANES + lane);
            *sum += if d == E::ZERO { E::ZERO } else { product };
        }
    }
    sums.into_iter().fold(E::ZERO, |total, sum| total + sum)
}
