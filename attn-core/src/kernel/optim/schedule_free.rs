//! Schedule-free AdamW.

use super::super::Real;
use super::super::compiled::compiled;
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each};
use super::normal_or_zero;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Defazio et al., "The road less scheduled" (2024), with the steps of Adam: `AdamWScheduleFree` of the package `schedulefree`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleFree {
    /// The learning rate of this step.
    pub lr: f64,
    /// How near the parameters are to the mean of all steps.
    pub beta1: f64,
    /// The decay rate of the mean of the squares of the gradients.
    pub beta2: f64,
    /// A small number that keeps the divisor away from 0.
    pub epsilon: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
    /// The share of this step in the mean of all steps.
    pub share: f64,
}

compiled! {
    ScheduleFreeStep:

    /// One step of the parameters `y`, at which gradients are taken, and of the sequence `z`:
    ///
    /// ```text
    /// v = beta2 v + (1 - beta2) g²
    /// d = g / (sqrt(v / (1 - beta2^step)) + epsilon) + weight_decay y
    /// y = (1 - share) y + share z - lr (1 - beta1 (1 - share)) d
    /// z = z - lr d
    /// ```
    ///
    /// # Panics
    /// If the lengths differ, or `step` is 0.
    #[track_caller]
    pub fn schedule_free_step<E>(
        y: &mut [E],
        g: &[E],
        v: &mut [E],
        z: &mut [E],
        settings: &ScheduleFree,
    ) {
        let len = y.len();
        assert!(
            g.len() == len && v.len() == len && z.len() == len,
            "as many gradients and means as parameters"
        );
        assert!(settings.step > 0, "steps count from 1");
        let lists = v.chunks_mut(SMALL).zip(z.chunks_mut(SMALL));
        let parts = y.chunks_mut(SMALL).zip(g.chunks(SMALL)).zip(lists);
        for_each(parts, |((y, g), (v, z))| {
            run(Step {
                y,
                g,
                v,
                z,
                settings,
            });
        });
    }

    /// `x = (1 - weight) x + weight to`
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn interpolate<E>(x: &mut [E], to: &[E], weight: f64) {
        assert_eq!(x.len(), to.len(), "as many numbers on both sides");
        let parts = x.chunks_mut(SMALL).zip(to.chunks(SMALL));
        for_each(parts, |(x, to)| run(Interpolate { x, to, weight }));
    }
}

struct Step<'a, E> {
    y: &'a mut [E],
    g: &'a [E],
    v: &'a mut [E],
    z: &'a mut [E],
    settings: &'a ScheduleFree,
}

impl<E: Real> Kernel for Step<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self {
            y,
            g,
            v,
            z,
            settings: of,
        } = self;
        let splat = |number: f64| V::splat(E::of_f64(number));
        let (kept, new) = (splat(of.beta2), splat(1.0 - of.beta2));
        let unbias = splat(1.0 / (1.0 - of.beta2.powf(of.step as f64)).sqrt());
        let epsilon = splat(of.epsilon);
        let decay = splat(of.weight_decay);
        let share = splat(of.share);
        let of_y = splat(-of.lr * (1.0 - of.beta1 * (1.0 - of.share)));
        let of_z = splat(-of.lr);
        for_lanes!(V, g.len(), [g], [y, v, z], {
            let gradient = load_any::<V>(g);
            let square = load_any::<V>(v).mul_add(kept, gradient * gradient * new);
            let square = normal_or_zero(square);
            store_any(square, v);
            let at = load_any::<V>(y);
            let deviation = square.sqrt().mul_add(unbias, epsilon);
            let direction = at.mul_add(decay, gradient / deviation);
            let of_steps = load_any::<V>(z);
            let towards = (of_steps - at).mul_add(share, at);
            store_any(direction.mul_add(of_y, towards), y);
            store_any(direction.mul_add(of_z, of_steps), z);
        });
    }
}

struct Interpolate<'a, E> {
    x: &'a mut [E],
    to: &'a [E],
    weight: f64,
}

impl<E: Real> Kernel for Interpolate<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, to, weight } = self;
        let weight = V::splat(E::of_f64(weight));
        for_lanes!(V, to.len(), [to], [x], {
            let from = load_any::<V>(x);
            store_any((load_any::<V>(to) - from).mul_add(weight, from), x);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    /// Parameters after three steps, of which each has the same share in the mean.
    fn trained<E: crate::kernel::Kernels>(len: usize) -> Vec<E> {
        let mut y = noise::<E>(len, 0);
        let mut z = y.clone();
        let mut v = vec![E::ZERO; len];
        for step in 1..=3 {
            let g = noise::<E>(len, step);
            schedule_free_step(&mut y, &g, &mut v, &mut z, &settings(step));
        }
        y
    }

    fn settings(step: u64) -> ScheduleFree {
        ScheduleFree {
            lr: 0.01,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-3,
            weight_decay: 0.1,
            step,
            share: 1.0 / step as f64,
        }
    }

    /// The paper keeps the mean `x` of the steps `z` and takes gradients at `y`, which is between the two.
    fn naive(len: usize) -> Vec<f64> {
        let mut x = noise::<f64>(len, 0);
        let mut z = x.clone();
        let mut v = vec![0.0; len];
        let between = |beta: f64, x: f64, z: f64| (1.0 - beta) * z + beta * x;
        for step in 1..=3 {
            let of = settings(step);
            let gradients = noise::<f64>(len, step);
            for i in 0..len {
                let y = between(of.beta1, x[i], z[i]);
                v[i] = of.beta2 * v[i] + (1.0 - of.beta2) * gradients[i].powi(2);
                let unbiased = v[i] / (1.0 - of.beta2.powi(step as i32));
                let direction = gradients[i] / (unbiased.sqrt() + of.epsilon) + of.weight_decay * y;
                z[i] -= of.lr * direction;
                x[i] += of.share * (z[i] - x[i]);
            }
        }
        let last = settings(3).beta1;
        x.iter().zip(z).map(|(x, z)| between(last, *x, z)).collect()
    }

    #[test]
    fn a_step_agrees_with_the_paper() {
        on_every_isa(|isa| {
            for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                let want = naive(len);
                let what = format!("{len} on {isa}");
                assert_close(&what, &trained::<f64>(len), &want, Absolute(2e-15));
                // Three steps of roundings of numbers up to 1.
                assert_close(&what, &trained::<f32>(len), &want, Absolute(1e-6));
            }
        });
    }

    #[test]
    fn an_interpolation_is_undone_by_its_inverse() {
        let to = noise::<f64>(37, 1);
        let from = noise::<f64>(37, 2);
        let mut x = from.clone();
        interpolate(&mut x, &to, 0.25);
        let want: Vec<f64> = from
            .iter()
            .zip(&to)
            .map(|(x, to)| 0.75 * x + 0.25 * to)
            .collect();
        assert_close("there", &x, &want, Absolute(1e-15));
        interpolate(&mut x, &to, 1.0 - 1.0 / 0.75);
        assert_close("and back", &x, &from, Absolute(1e-15));
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>(5 * SMALL + 3));
    }
}
