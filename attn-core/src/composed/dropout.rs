//! Dropout of attention weights.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, TryMul},
};

use super::tensors::is_empty;
use crate::{Element, random::Philox4x32};

/// Sets each weight to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`.
///
/// Srivastava et al., "Dropout" (2014), applied after the normalizer, as in Vaswani et al. (2017). PyTorch:
/// `torch.nn.functional.dropout(weights, p)`. The selection is a function of `seed` and of the indices
/// `(b, h, q_idx, kv_idx)` alone.
pub fn dropout<S, E: Element, D: Device<E>, T: Tape<E, D>>(
    weights: Tensor<S, E, D, T>,
    p: f64,
    seed: u64,
) -> Result<Tensor<S, E, D, T>, D::Err>
where
    S: Shape<Concrete = [usize; 4]>,
{
    let shape = *weights.shape();
    if p <= 0.0 || is_empty(&shape) {
        return Ok(weights);
    }
    let factors = factors(shape.concrete(), p, seed);
    let factors: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(weights.device(), factors, shape)?;
    weights.try_mul(factors)
}

/// 0 or `1 / (1 - p)` for each weight, row-major.
fn factors<E: Element>([b, h, q, k]: [usize; 4], p: f64, seed: u64) -> Vec<E> {
    let random = Philox4x32::new(seed);
    let keep = E::of(1.0 / (1.0 - p));
    // A weight is dropped if its word is below the threshold: p * 2^32 of the 2^32 words are.
    let threshold = p * 2f64.powi(32);
    let mut factors = Vec::with_capacity(b * h * q * k);
    for row in 0..b * h * q {
        let [query, head, batch] = [row % q, row / q % h, row / q / h].map(|i| i as u32);
        for first in (0..k).step_by(4) {
            // One block has the words of four adjacent keys.
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    // Imported by name, because dfdx's prelude has a function with the same name.
    use super::dropout;
    use crate::{Element, composed::Scores, random::Philox4x32, testing::*};

    type Weights<E> = Scores<usize, 2, usize, usize, E, Cpu, NoneTape>;

    fn ones<E: Element>(b: usize, q: usize, k: usize) -> Weights<E>
    where
        Cpu: Device<E>,
    {
        Cpu::default().ones_like(&(b, Const, q, k))
    }

    #[test]
    fn dropout_drops_a_fraction_of_p_and_keeps_the_mean() {
        const N: usize = 4 * 2 * 100 * 101;
        for p in [0.1, 0.5, 0.9] {
            let out = values(&dropout(ones::<f64>(4, 100, 101), p, 42).unwrap());
            let dropped = out.iter().filter(|&&x| x == 0.0).count() as f64 / N as f64;
            // Five standard errors of a proportion of N = 80800.
            assert!((dropped - p).abs() < 5.0 * (p * (1.0 - p) / N as f64).sqrt());
            assert!(out.iter().all(|&x| x == 0.0 || x == 1.0 / (1.0 - p)));
        }
    }

    #[test]
    fn no_dropout_is_the_identity() {
        let weights: Weights<f32> = tensor((2, Const, 3, 5), 1);
        let out = dropout(weights.clone(), 0.0, 42).unwrap();
        assert_eq!(values(&out), values(&weights));
    }

    #[test]
    fn the_selection_depends_on_seed_and_indices_alone() {
        let drop = |b, q, k, seed| values(&dropout(ones::<f64>(b, q, k), 0.5, seed).unwrap());
        let small = drop(1, 3, 5, 42);
        let large = drop(3, 4, 10, 42);
        let cut = naive([1, 2, 3, 5], |b, h, q, k| {
            large[at([3, 2, 4, 10], [b, h, q, k])]
        });
        assert_eq!(small, cut);
        assert_ne!(small, drop(1, 3, 5, 43));
        // The upper half of the seed matters, too.
        assert_ne!(small, drop(1, 3, 5, 42 | 1 << 32));

        // The mask varies along each axis, so no two axes are confused.
        let sizes = [3, 2, 4, 10];
        for axis in 0..4 {
            let mut moved = false;
            for place in naive(sizes, |b, h, q, k| [b, h, q, k]) {
                let mut first = place;
                first[axis] = 0;
                moved |= large[at(sizes, place)] != large[at(sizes, first)];
            }
            assert!(moved, "axis {axis}");
        }
    }

    #[test]
    fn the_indices_are_the_counter() {
        let out = values(&dropout(ones::<f64>(3, 4, 10), 0.5, 42).unwrap());
        let random = Philox4x32::new(42);
        let expected = naive([3, 2, 4, 10], |b, h, q, k| {
            let counter = [k / 4, q, h, b].map(|i| i as u32);
            let word = random.block(counter)[k % 4];
            if word < 1 << 31 { 0.0 } else { 2.0 }
        });
        assert_eq!(out, expected);
    }

    #[test]
    fn the_gradient_equals_the_factor() {
        let weights: Weights<f64> = tensor((2, Const, 3, 5), 1);
        check_gradient(&weights, |w| dropout(w.leaky_trace(), 0.3, 7).unwrap());
    }

    #[test]
    fn odd_and_empty_sizes_are_supported() {
        for [b, q, k] in [[1, 1, 1], [1, 2, 3], [0, 2, 3], [2, 0, 3], [2, 3, 0]] {
            let out = dropout(ones::<f32>(b, q, k), 0.5, 1).unwrap();
            assert_eq!(*out.shape(), (b, Const, q, k));
        }
    }
}
