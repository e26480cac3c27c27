//! Adam with decoupled weight decay.

use super::super::Real;
use super::super::compiled::compiled;
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each};
use super::normal_or_zero;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Adam with decoupled weight decay. Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2.
/// PyTorch: `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f64,
    /// The decay rate of the mean of the gradients.
    pub beta1: f64,
    /// The decay rate of the mean of their squares.
    pub beta2: f64,
    /// A small number that keeps the divisor away from 0.
    pub epsilon: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
}

compiled! {
    AdamWStep:

    /// One step. It computes new means `m` of the gradients `g` and `v` of their squares, and from these new parameters:
    ///
    /// ```text
    /// m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g²
    /// p = p - lr weight_decay p - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon)
    /// ```
    ///
    /// Means that would be subnormal are set to 0. Without a gradient, as for the embedding of a rare token, they decay towards 0
    /// and would stay subnormal. A processor takes several times as long for such numbers.
    ///
    /// # Panics
    /// If the lengths differ, or `step` is 0.
    #[track_caller]
    pub fn adamw_step<E>(p: &mut [E], g: &[E], m: &mut [E], v: &mut [E], adamw: &AdamW) {
        let len = p.len();
        assert!(
            g.len() == len && m.len() == len && v.len() == len,
            "as many gradients and means as parameters"
        );
        assert!(adamw.step > 0, "steps count from 1");
        let factors = Factors::new(adamw);
        let means = m.chunks_mut(SMALL).zip(v.chunks_mut(SMALL));
        let parts = p.chunks_mut(SMALL).zip(g.chunks(SMALL)).zip(means);
        for_each(parts, |((p, g), (m, v))| {
            run(Step {
                p,
                g,
                m,
                v,
                factors,
            });
        });
    }
}

/// The constants of a step.
#[derive(Clone, Copy)]
struct Factors<E> {
    kept: E,
    new_gradient: E,
    kept_square: E,
    new_square: E,
    /// `1 / sqrt(1 - beta2^step)`
    unbias: E,
    epsilon: E,
    /// `lr / (1 - beta1^step)`, negative.
    rate: E,
}

impl<E: Real> Factors<E> {
    fn new(adamw: &AdamW) -> Self {
        let bias = |beta: f64| 1.0 - beta.powf(adamw.step as f64);
        Self {
            kept: E::of_f64(1.0 - adamw.lr * adamw.weight_decay),
            new_gradient: E::of_f64(1.0 - adamw.beta1),
            kept_square: E::of_f64(adamw.beta2),
            new_square: E::of_f64(1.0 - adamw.beta2),
            unbias: E::of_f64(1.0 / bias(adamw.beta2).sqrt()),
            epsilon: E::of_f64(adamw.epsilon),
            rate: E::of_f64(-adamw.lr / bias(adamw.beta1)),
        }
    }
}

struct Step<'a, E> {
    p: &'a mut [E],
    g: &'a [E],
    m: &'a mut [E],
    v: &'a mut [E],
    factors: Factors<E>,
}

impl<E: Real> Kernel for Step<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self {
            p,
            g,
            m,
            v,
            factors,
        } = self;
        for_lanes!(V, g.len(), [g], [p, m, v], {
            let gradient = load_any::<V>(g);
            let mean = load_any::<V>(m);
            let mean = (gradient - mean).mul_add(V::splat(factors.new_gradient), mean);
            let mean = normal_or_zero(mean);
            let new = gradient * gradient * V::splat(factors.new_square);
            let square = load_any::<V>(v).mul_add(V::splat(factors.kept_square), new);
            let square = normal_or_zero(square);
            let deviation = square
                .sqrt()
                .mul_add(V::splat(factors.unbias), V::splat(factors.epsilon));
            let kept = load_any::<V>(p) * V::splat(factors.kept);
            store_any(mean, m);
            store_any(square, v);
            store_any((mean / deviation).mul_add(V::splat(factors.rate), kept), p);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const ADAMW: AdamW = AdamW {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-3,
        weight_decay: 0.1,
        step: 1,
    };

    /// Parameters after three steps.
    fn trained<E: crate::kernel::Kernels>(len: usize) -> Vec<E> {
        let mut p = noise::<E>(len, 0);
        let mut m = vec![E::ZERO; len];
        let mut v = vec![E::ZERO; len];
        for step in 1..=3 {
            let g = noise::<E>(len, step);
            adamw_step(&mut p, &g, &mut m, &mut v, &AdamW { step, ..ADAMW });
        }
        p
    }

    /// The equations of the paper.
    fn naive(len: usize) -> Vec<f64> {
        let AdamW {
            lr,
            beta1,
            beta2,
            epsilon,
            weight_decay,
            ..
        } = ADAMW;
        let gradients = [1, 2, 3].map(|step| noise::<f64>(len, step));
        let one = |(i, p): (usize, f64)| {
            let mut p = p;
            let mut m = 0.0;
            let mut v = 0.0;
            for (step, g) in gradients.iter().enumerate() {
                let t = step as i32 + 1;
                m = beta1 * m + (1.0 - beta1) * g[i];
                v = beta2 * v + (1.0 - beta2) * g[i] * g[i];
                let m = m / (1.0 - beta1.powi(t));
                let v = v / (1.0 - beta2.powi(t));
                p -= lr * (m / (f64::sqrt(v) + epsilon) + weight_decay * p);
            }
            p
        };
        noise::<f64>(len, 0)
            .into_iter()
            .enumerate()
            .map(one)
            .collect()
    }

    #[test]
    fn a_step_agrees_with_the_paper() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let want = naive(len);
                let what = format!("{len} on {isa}");
                assert_close(&what, &trained::<f64>(len), &want, Absolute(1e-15));
                // Three steps of roundings of numbers up to 1.
                assert_close(&what, &trained::<f32>(len), &want, Absolute(4e-7));
            }
        });
    }

    /// `torch.optim.AdamW([p], lr=0.1)` on `p = 1` with gradients 0.5 and then 0.25. The first step is
    /// `1 - 0.1 * 0.01 - 0.1 * 0.5 / (0.5 + 1e-8)`.
    #[test]
    fn the_first_step_has_the_length_of_the_learning_rate() {
        let adamw = AdamW {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step: 1,
        };
        let mut p = [1.0_f64];
        let mut m = [0.0];
        let mut v = [0.0];
        adamw_step(&mut p, &[0.5], &mut m, &mut v, &adamw);
        assert!(
            (p[0] - (1.0 - 0.001 - 0.1 / (1.0 + 2e-8))).abs() < 1e-15,
            "{p:?}"
        );
        assert!((m[0] - 0.05).abs() < 1e-16 && (v[0] - 0.000_25).abs() < 1e-18);
    }

    #[test]
    fn means_are_never_subnormal() {
        let adamw = AdamW {
            beta1: 0.9,
            beta2: 0.999,
            ..ADAMW
        };
        on_every_isa(|isa| {
            let mut p = [0.0_f32; 3];
            let least = [1.0, 1.2, 1.0 / 0.9 * 1.01].map(|times| times * f32::MIN_POSITIVE);
            let mut m = least;
            let mut v = least;
            adamw_step(&mut p, &[0.0; 3], &mut m, &mut v, &adamw);
            assert_eq!(m[0], 0.0, "{isa}");
            assert!(
                m[1] >= f32::MIN_POSITIVE && m[2] >= f32::MIN_POSITIVE,
                "{isa}: {m:?}"
            );
            assert_eq!(v[0], 0.0, "{isa}");
            let mut negative = m.map(|m| -m);
            adamw_step(&mut p, &[0.0; 3], &mut negative, &mut v, &adamw);
            assert_eq!(negative, [0.0; 3], "{isa}");
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>(5 * SMALL + 3));
    }
}
