//! Lion: the sign of a momentum.

use super::super::Real;
use super::super::compiled::compiled;
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each};
use super::normal_or_zero;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Chen et al., "Symbolic discovery of optimization algorithms" (2023), program 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lion {
    /// The learning rate.
    pub lr: f64,
    /// How much of the momentum is in the direction of a step.
    pub beta1: f64,
    /// How much of the momentum stays.
    pub beta2: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter.
    pub weight_decay: f64,
}

compiled! {
    LionStep:

    /// One step:
    ///
    /// ```text
    /// p = p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p)
    /// m = beta2 m + (1 - beta2) g
    /// ```
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn lion_step<E>(p: &mut [E], g: &[E], m: &mut [E], lion: &Lion) {
        let len = p.len();
        assert!(
            g.len() == len && m.len() == len,
            "as many gradients and means as parameters"
        );
        let parts = p.chunks_mut(SMALL).zip(g.chunks(SMALL));
        for_each(parts.zip(m.chunks_mut(SMALL)), |((p, g), m)| {
            run(Step { p, g, m, lion });
        });
    }
}

struct Step<'a, E> {
    p: &'a mut [E],
    g: &'a [E],
    m: &'a mut [E],
    lion: &'a Lion,
}

impl<E: Real> Kernel for Step<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { p, g, m, lion } = self;
        let splat = |number: f64| V::splat(E::of_f64(number));
        let of_gradient = splat(1.0 - lion.beta1);
        let new = splat(1.0 - lion.beta2);
        let kept = splat(1.0 - lion.lr * lion.weight_decay);
        let rate = splat(-lion.lr);
        for_lanes!(V, g.len(), [g], [p, m], {
            let momentum = load_any::<V>(m);
            let change = load_any::<V>(g) - momentum;
            let direction = sign(change.mul_add(of_gradient, momentum));
            store_any(direction.mul_add(rate, load_any::<V>(p) * kept), p);
            store_any(normal_or_zero(change.mul_add(new, momentum)), m);
        });
    }
}

/// 1, -1, or the number itself if it is 0 or NaN.
#[inline(always)]
fn sign<V: Vector>(x: V) -> V {
    let one = V::splat(Real::ONE).copysign(x);
    V::select(x.abs().gt(V::zero()), one, x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const LION: Lion = Lion {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.75,
        weight_decay: 0.5,
    };

    /// Parameters after three steps.
    fn trained<E: crate::kernel::Kernels>(len: usize) -> Vec<E> {
        let mut p = noise::<E>(len, 0);
        let mut m = vec![E::ZERO; len];
        for step in 1..=3 {
            lion_step(&mut p, &noise::<E>(len, step), &mut m, &LION);
        }
        p
    }

    fn naive(len: usize) -> Vec<f64> {
        let mut p = noise::<f64>(len, 0);
        let mut m = vec![0.0; len];
        for step in 1..=3 {
            let gradients = noise::<f64>(len, step);
            for ((p, m), g) in p.iter_mut().zip(&mut m).zip(gradients) {
                let direction = (LION.beta1 * *m + (1.0 - LION.beta1) * g).signum();
                *p -= LION.lr * (direction + LION.weight_decay * *p);
                *m = LION.beta2 * *m + (1.0 - LION.beta2) * g;
            }
        }
        p
    }

    #[test]
    fn a_step_agrees_with_the_paper() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let want = naive(len);
                let what = format!("{len} on {isa}");
                assert_close(&what, &trained::<f64>(len), &want, Absolute(1e-15));
                // Three steps of roundings of numbers up to 1. No sum here is so near 0 that its sign is a matter of rounding.
                assert_close(&what, &trained::<f32>(len), &want, Absolute(4e-7));
            }
        });
    }

    #[test]
    fn without_a_direction_there_is_no_step() {
        on_every_isa(|isa| {
            let mut p = [1.0_f32, 1.0, 1.0];
            let lion = Lion {
                weight_decay: 0.0,
                ..LION
            };
            lion_step(&mut p, &[0.0, -0.0, f32::NAN], &mut [0.0; 3], &lion);
            assert_eq!(p[..2], [1.0; 2], "{isa}");
            assert!(p[2].is_nan(), "{isa}");
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>(5 * SMALL + 3));
    }
}
