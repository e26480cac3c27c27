//! Sparse normalizers, from scores to weights that are 0 for most keys.
//!
//! The *support* of a row is the set of keys with weights above 0. It is computed on the host without a derivative, because a small change
//! of the scores does not change it. Given the support, the weights are a formula of the scores, which dfdx differentiates.

use dfdx::{
    shapes::{Axis, Const, Dim, HasShape},
    tensor::{NoneTape, Tape, TensorFromVec},
    tensor_ops::{Device, SumTo, TryAdd, TryMul, TrySub},
};

use super::{
    ScoreMask, Scores,
    normalize::{Rows, bias, hide, off_tape, over_keys, sum_over_keys},
    tensors::is_empty,
};
use crate::Element;

/// `weight[k] = max(score[k] - tau, 0)` for the keys that the query attends to, 0 for the others. `tau` is the number for which the sum
/// of the weights is 1. The weights are the point of the probability simplex that is nearest to the scores.
///
/// Martins and Astudillo, "From softmax to sparsemax: a sparse model of attention and multi-label classification" (2016),
/// algorithm 1 and proposition 2. PyTorch: `entmax.sparsemax(scores.masked_fill(~mask, -inf), -1)` of the package
/// `entmax`.
pub fn sparsemax<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *scores.shape();
    if is_empty(&shape) {
        return Ok(scores);
    }
    let (scores, support) = on_support(scores, mask, sparsemax_support)?;
    let scores = scores.try_mul(support.keys.clone())?;
    // The sum of the weights is 1.
    let tau = sum_over_keys(&scores)?
        .try_add(-E::one())?
        .try_mul(support.share)?;
    let tau = over_keys(tau, &shape)?.try_mul(support.keys)?;
    scores.try_sub(tau)
}

/// `weight[k] = max(score[k] / 2 - tau, 0)^2` for the keys that the query attends to, 0 for the others. `tau` is the number for which the
/// sum of the weights is 1. This is between softmax and [`sparsemax`]: entmax with `alpha = 1.5`.
///
/// Peters, Niculae and Martins, "Sparse sequence-to-sequence models" (2019), equation 10 and algorithm 2. PyTorch:
/// `entmax.entmax15(scores.masked_fill(~mask, -inf), -1)` of the package `entmax`.
pub fn entmax15<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *scores.shape();
    if is_empty(&shape) {
        return Ok(scores);
    }
    let (scores, support) = on_support(scores, mask, entmax15_support)?;
    let scores = scores.try_mul(E::of(0.5))?.try_mul(support.keys.clone())?;
    let mean = sum_over_keys(&scores)?.try_mul(support.share.clone())?;
    let mean = over_keys(mean, &shape)?.try_mul(support.keys.clone())?;
    let centred = scores.try_sub(mean)?;
    // The sum of the weights, (centred + mean - tau)^2, is 1.
    let squares = centred.retaped::<T>().try_square()?;
    let above_tau = squares
        .try_sum::<_, Axis<3>>()?
        .try_negate()?
        .try_add(E::one())?
        .try_mul(support.share)?
        .try_sqrt()?;
    let above_tau = over_keys(above_tau, &shape)?.try_mul(support.keys)?;
    centred.try_add(above_tau)?.try_square()
}

/// The support of each row.
struct Support<B: Dim, const H: usize, Q: Dim, K: Dim, E: Element, D: Device<E>> {
    /// 1 in the support, 0 elsewhere.
    keys: Scores<B, H, Q, K, E, D, NoneTape>,
    /// 1 divided by the number of keys in the support; 1 if it is empty.
    share: Rows<B, H, Q, E, D, NoneTape>,
}

/// The scores minus the maximum of their row, and 0 outside of the support. The weights depend on neither of the two changes, so they have
/// no gradient.
///
/// `support` returns the number of keys in the support. Its argument are the scores of a row in descending order, starting with 0.
fn on_support<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
    support: fn(&[f64]) -> usize,
) -> Result<(Scores<B, H, Q, K, E, D, T>, Support<B, H, Q, K, E, D>), D::Err> {
    let shape @ (b, h, q, k): (B, Const<H>, Q, K) = *scores.shape();
    off_tape(scores, |scores| {
        let device = scores.device().clone();
        let mut scores = hide(scores, bias(mask))?.as_vec();
        let mut keys = vec![E::zero(); scores.len()];
        let rows = scores.chunks_mut(k.size()).zip(keys.chunks_mut(k.size()));
        let share = rows.map(|(scores, keys)| {
            let count = reduce_to_support(scores, keys, support);
            E::of(1.0 / count.max(1) as f64)
        });
        let share = TensorFromVec::<E>::try_tensor_from_vec(&device, share.collect(), (b, h, q))?;
        let keys = TensorFromVec::<E>::try_tensor_from_vec(&device, keys, shape)?;
        let scores = TensorFromVec::<E>::try_tensor_from_vec(&device, scores, shape)?;
        Ok((scores, Support { keys, share }))
    })
}

/// [`on_support`] for a row. Returns the number of keys in the support. A row with NaN has the whole row as its support.
fn reduce_to_support<E: Element>(
    scores: &mut [E],
    keys: &mut [E],
    support: fn(&[f64]) -> usize,
) -> usize {
    let attended = scores.iter().filter(|score| **score != E::neg_infinity());
    let mut descending: Vec<f64> = attended.map(|&score| score.into()).collect();
    descending.sort_by(|a, b| b.total_cmp(a));
    let Some(&max) = descending.first() else {
        scores.fill(E::zero());
        return 0;
    };
    descending.iter_mut().for_each(|score| *score -= max);
    let has_nan = descending.iter().any(|score| score.is_nan());
    let count = if has_nan {
        descending.len()
    } else {
        support(&descending)
    };
    let least = descending[count - 1];
    for (score, key) in scores.iter_mut().zip(keys) {
        let above = (*score).into() - max;
        let is_in = above >= least || (has_nan && *score != E::neg_infinity());
        *key = if is_in { E::one() } else { E::zero() };
        *score = if is_in { E::of(above) } else { E::zero() };
    }
    count
}

/// The last index at which the score is above the `tau` of a support that ends there.
fn sparsemax_support(descending: &[f64]) -> usize {
    let mut sum = 0.0;
    last(descending, |count, score| {
        sum += score;
        score > (sum - 1.0) / count
    })
}

/// The same for [`entmax15`].
fn entmax15_support(descending: &[f64]) -> usize {
    let mut mean = 0.0;
    let mut squares = 0.0;
    last(descending, |count, score| {
        // Welford's update of a variance.
        let score = score / 2.0;
        let before = mean;
        mean += (score - before) / count;
        squares += (score - before) * (score - mean);
        squares < 1.0 && score > mean - ((1.0 - squares) / count).sqrt()
    })
}

/// The number of scores up to the last one for which `is_in` holds, but at least one.
fn last(descending: &[f64], mut is_in: impl FnMut(f64, f64) -> bool) -> usize {
    let inside = descending
        .iter()
        .enumerate()
        .filter(|(at, score)| is_in(*at as f64 + 1.0, **score));
    inside.last().map_or(1, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    /// A row of scores.
    fn row(scores: &[f64]) -> Scores<usize, 1, usize, usize, f64, Cpu, NoneTape> {
        filled((1, Const, 1, scores.len()), scores)
    }

    #[test]
    fn sparsemax_projects_onto_the_corners_and_edges_of_the_simplex() {
        let weights = |scores: &[f64]| values(&sparsemax(row(scores), None).unwrap());
        assert_close(&weights(&[1.1, 0.1, 0.2]), &[0.95, 0.0, 0.05], F64);
        assert_eq!(weights(&[2.0, 1.0, -3.0]), [1.0, 0.0, 0.0]);
        assert_close(&weights(&[0.0; 3]), &[1.0 / 3.0; 3], F64);
        // For two keys it is a linear function between -1 and 1.
        for t in [-2.0, -1.0, -0.4, 0.0, 0.7, 1.0, 5.0f64] {
            let first = ((t + 1.0) / 2.0).clamp(0.0, 1.0);
            assert_close(&weights(&[t, 0.0]), &[first, 1.0 - first], F64);
        }
    }

    #[test]
    fn entmax15_of_two_keys_is_a_quarter_of_a_circle() {
        let weights = |scores: &[f64]| values(&entmax15(row(scores), None).unwrap());
        // Let x and y be the distances above the threshold: x² + y² = 1 and x - y = t / 2.
        for t in [-1.9, -0.4, 0.0, 0.7, 1.9f64] {
            let half = t / 2.0;
            let x = (half + (2.0 - half * half).sqrt()) / 2.0;
            assert_close(&weights(&[t, 0.0]), &[x * x, 1.0 - x * x], F64);
        }
        assert_eq!(weights(&[2.5, 0.0, -1.0]), [1.0, 0.0, 0.0]);
        assert_close(&weights(&[1e4; 4]), &[0.25; 4], F64);
    }

    #[test]
    fn a_score_of_nan_makes_its_row_nan() {
        for f in [sparsemax, entmax15] {
            let weights = values(&f(row(&[1.0, f64::NAN, 0.0]), None).unwrap());
            assert!(weights.iter().all(|weight| weight.is_nan()));
        }
    }
}
