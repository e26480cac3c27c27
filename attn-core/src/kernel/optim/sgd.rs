//! Stochastic gradient descent.

use super::super::Real;
use super::super::compiled::compiled;
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each};
use super::normal_or_zero;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Stochastic gradient descent with momentum. Sutskever et al., "On the importance of initialization and momentum in deep learning"
/// (2013), in the form of PyTorch: `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// The learning rate.
    pub lr: f64,
    /// How much of the momentum of the step before stays.
    pub momentum: f64,
    /// How much of the gradient does not enter the momentum.
    pub dampening: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// This multiple of a parameter is added to its gradient.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
}

compiled! {
    SgdStep:

    /// One step:
    ///
    /// ```text
    /// g = g + weight_decay p
    /// m = momentum m + (1 - dampening) g        in the first step m = g
    /// p = p - lr m        with nesterov p = p - lr (g + momentum m)
    /// ```
    ///
    /// Without momentum `m` is empty.
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn sgd_step<E>(p: &mut [E], g: &[E], m: &mut [E], sgd: &Sgd) {
        assert_eq!(g.len(), p.len(), "as many gradients as parameters");
        if sgd.momentum == 0.0 {
            let parts = p.chunks_mut(SMALL).zip(g.chunks(SMALL));
            return for_each(parts, |(p, g)| run(Plain { p, g, sgd }));
        }
        assert_eq!(m.len(), p.len(), "as much momentum as parameters");
        let parts = p.chunks_mut(SMALL).zip(g.chunks(SMALL));
        for_each(parts.zip(m.chunks_mut(SMALL)), |((p, g), m)| {
            run(WithMomentum { p, g, m, sgd });
        });
    }
}

struct Plain<'a, E> {
    p: &'a mut [E],
    g: &'a [E],
    sgd: &'a Sgd,
}

impl<E: Real> Kernel for Plain<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { p, g, sgd } = self;
        let rate = V::splat(E::of_f64(-sgd.lr));
        let kept = V::splat(E::of_f64(1.0 - sgd.lr * sgd.weight_decay));
        for_lanes!(V, g.len(), [g], [p], {
            let rest = load_any::<V>(p) * kept;
            store_any(load_any::<V>(g).mul_add(rate, rest), p);
        });
    }
}

struct WithMomentum<'a, E> {
    p: &'a mut [E],
    g: &'a [E],
    m: &'a mut [E],
    sgd: &'a Sgd,
}

impl<E: Real> Kernel for WithMomentum<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { p, g, m, sgd } = self;
        let splat = |number: f64| V::splat(E::of_f64(number));
        let (kept, new) = match sgd.step {
            0 | 1 => (splat(0.0), splat(1.0)),
            _ => (splat(sgd.momentum), splat(1.0 - sgd.dampening)),
        };
        let [of_gradient, of_momentum] = match sgd.nesterov {
            true => [-sgd.lr, -sgd.lr * sgd.momentum],
            false => [0.0, -sgd.lr],
        };
        let (of_gradient, of_momentum) = (splat(of_gradient), splat(of_momentum));
        let decay = splat(sgd.weight_decay);
        for_lanes!(V, g.len(), [g], [p, m], {
            let old = load_any::<V>(p);
            let gradient = old.mul_add(decay, load_any(g));
            let momentum = load_any::<V>(m).mul_add(kept, gradient * new);
            let momentum = normal_or_zero(momentum);
            store_any(momentum, m);
            let ahead = gradient.mul_add(of_gradient, old);
            store_any(momentum.mul_add(of_momentum, ahead), p);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const SGD: Sgd = Sgd {
        lr: 0.1,
        momentum: 0.9,
        dampening: 0.25,
        nesterov: false,
        weight_decay: 0.5,
        step: 1,
    };

    /// Parameters after three steps.
    fn trained<E: crate::kernel::Kernels>(len: usize, sgd: Sgd) -> Vec<E> {
        let mut p = noise::<E>(len, 0);
        let mut m = vec![E::ZERO; if sgd.momentum == 0.0 { 0 } else { len }];
        for step in 1..=3 {
            let g = noise::<E>(len, step);
            sgd_step(&mut p, &g, &mut m, &Sgd { step, ..sgd });
        }
        p
    }

    /// PyTorch's formulas.
    fn naive(len: usize, sgd: Sgd) -> Vec<f64> {
        let mut p = noise::<f64>(len, 0);
        let mut m = vec![0.0; len];
        for step in 1..=3 {
            let gradients = noise::<f64>(len, step);
            for ((p, m), g) in p.iter_mut().zip(&mut m).zip(gradients) {
                let g = g + sgd.weight_decay * *p;
                *m = match step {
                    1 => g,
                    _ => sgd.momentum * *m + (1.0 - sgd.dampening) * g,
                };
                let direction = match (sgd.momentum == 0.0, sgd.nesterov) {
                    (true, _) => g,
                    (false, true) => g + sgd.momentum * *m,
                    (false, false) => *m,
                };
                *p -= sgd.lr * direction;
            }
        }
        p
    }

    #[test]
    fn a_step_agrees_with_the_formulas() {
        let plain = Sgd {
            momentum: 0.0,
            ..SGD
        };
        let nesterov = Sgd {
            nesterov: true,
            dampening: 0.0,
            ..SGD
        };
        on_every_isa(|isa| {
            for sgd in [SGD, plain, nesterov] {
                for len in LENGTHS.into_iter().chain([2 * SMALL + 5]) {
                    let want = naive(len, sgd);
                    let what = format!("{sgd:?}, {len} on {isa}");
                    assert_close(&what, &trained::<f64>(len, sgd), &want, Absolute(2e-15));
                    // Three steps of roundings of numbers up to 2.
                    assert_close(&what, &trained::<f32>(len, sgd), &want, Absolute(1e-6));
                }
            }
        });
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>(5 * SMALL + 3, SGD));
    }
}
