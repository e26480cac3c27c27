//! Dropout of attention weights.

use dfdx::{
    shapes::{Dim, HasShape, Shape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, TryMul},
};

use super::{Scores, empty::is_empty};
use crate::{Element, random::Philox4x32};

/// Sets each weight to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`.
///
/// Srivastava et al., "Dropout" (2014), on the weights after the normalizer, as in Vaswani et al. (2017). PyTorch:
/// `torch.nn.functional.dropout(weights, p)`. Which weights fall depends on `key` and on the place
/// `(b, h, q_idx, kv_idx)` alone.
pub fn dropout<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    weights: Scores<B, H, Q, K, E, D, T>,
    p: f64,
    key: u64,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *weights.shape();
    if p <= 0.0 || is_empty(&shape) {
        return Ok(weights);
    }
    let factors = factors(shape.concrete(), p, key);
    let factors: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(weights.device(), factors, shape)?;
    weights.try_mul(factors)
}

/// 0 or `1 / (1 - p)` for each place, row-major.
fn factors<E: Element>([b, h, q, k]: [usize; 4], p: f64, key: u64) -> Vec<E> {
    let random = Philox4x32::new(key);
    let keep = E::of(1.0 / (1.0 - p));
    // A word below the threshold drops: of 2^32 words, p * 2^32.
    let threshold = p * 2f64.powi(32);
    let mut factors = Vec::with_capacity(b * h * q * k);
    for row in 0..b * h * q {
        let [query, head, batch] = [row % q, row / q % h, row / q / h].map(|i| i as u32);
        for first in (0..k).step_by(4) {
            // One block serves four neighbouring keys.
            let words = random.block([(first / 4) as u32, query, head, batch]);
            let words = words.into_iter().take(k - first);
            factors.extend(words.map(|word| {
                if f64::from(word) < threshold {
                    E::zero()
                } else {
                    keep
                }
            }));
        }
    }
    factors
}
