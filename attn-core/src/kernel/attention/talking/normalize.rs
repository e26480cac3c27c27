//! The derivative of the normalizers, over whole rows.
//!
//! ```text
//! softmax     p = exp(s - lse)        ds = p (dp - δ)        δ = Σ p dp - dlse
//! identity    p = s                   ds = dp
//! sparse      p, g of `sparse.rs`     ds = g (dp - δ)        δ = (Σ g dp - dτ scale) / Σ g
//! ```

use super::super::Normalizer;
use super::super::plan::QUERIES;
use super::super::softmax_state::is_hidden;
use super::super::weights::{Exponential, Identity, Threshold, Weights};
use crate::simd::slice::{load_any, load_filled, store_any};
use crate::simd::{Kernel, MatrixMut, Real, Vector};

/// Recomputes the weights of a head, and computes the gradient of its scores.
pub(super) struct Differentiate<'a, E> {
    pub normalizer: Normalizer<'a, E>,
    /// `[queries]`
    pub lse: &'a [E],
    /// The gradient of `lse`, if there is one, `[queries]`.
    pub d_lse: Option<&'a [E]>,
    /// Scores, which become weights, `[queries, keys]`.
    pub scores: MatrixMut<'a, E>,
    /// The gradient of the weights, 0 where masked, which becomes that of the scores, `[queries, keys]`.
    pub d: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Differentiate<'_, E> {
    type Element = E;
    /// `δ`
    type Output = [E; QUERIES];

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) -> [E; QUERIES] {
        let mut deltas = [E::ZERO; QUERIES];
        for (row, delta) in deltas[..self.lse.len()].iter_mut().enumerate() {
            let scores = self.scores.row_mut(row);
            let d = self.d.row_mut(row);
            let lse = V::splat(self.lse[row]);
            let d_lse = self.d_lse.map_or(E::ZERO, |d_lse| d_lse[row]);
            *delta = match (self.normalizer, self.normalizer.sparse()) {
                (Normalizer::Identity, _) => {
                    gradients::<V>(Identity, scores, d, |_, _| E::ZERO);
                    E::ZERO
                }
                (_, None) => gradients(Exponential { lse }, scores, d, |sum, _| sum - d_lse),
                (_, Some(normalizer)) => {
                    let tau = lse;
                    let d_tau = d_lse * normalizer.scale();
                    let of_row = Threshold { normalizer, tau };
                    gradients(of_row, scores, d, |sum, slopes| match slopes == E::ZERO {
                        true => E::ZERO,
                        false => (sum - d_tau) / slopes,
                    })
                }
            };
        }
        deltas
    }
}

/// One row. `delta` is a function of `Σ g dp` and `Σ g`.
#[inline(always)]
fn gradients<V: Vector>(
    normalizer: impl Weights<V>,
    scores: &mut [V::Element],
    d: &mut [V::Element],
    delta: impl FnOnce(V::Element, V::Element) -> V::Element,
) -> V::Element {
    let mut sum = V::zero();
    let mut slopes = V::zero();
    let vectors = scores.chunks(V::LANES).zip(d.chunks_mut(V::LANES));
    for (scores, d) in vectors {
        let score = load_filled::<V>(scores, -V::Element::INFINITY);
        let (_, slope) = normalizer.weight_and_slope(score);
        let hidden = is_hidden(score);
        let slope = V::select(hidden, V::zero(), slope);
        let d_score = V::select(hidden, V::zero(), slope * load_any::<V>(d));
        sum += d_score;
        slopes += slope;
        store_any(d_score, d);
    }
    let delta = delta(sum.reduce_sum(), slopes.reduce_sum());
    let vectors = scores.chunks_mut(V::LANES).zip(d.chunks_mut(V::LANES));
    for (scores, d) in vectors {
        let score = load_any::<V>(scores);
        let hidden = is_hidden(score);
        let (weight, slope) = normalizer.weight_and_slope(score);
        let d_score = load_any::<V>(d) - slope * V::splat(delta);
        store_any(V::select(hidden, V::zero(), d_score), d);
        store_any(V::select(hidden, V::zero(), weight), scores);
    }
    delta
}
