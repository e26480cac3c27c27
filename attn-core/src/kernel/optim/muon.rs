//! Muon: momentum whose singular values are all made about 1.

use super::super::compiled::compiled;
use super::super::elementwise::{add_scaled, scale};
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each};
use super::super::{Buffer, Kernels, Matrix, MatrixMut, Pooled, Real};
use super::{normal_or_zero, squared_norm};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Threads, Vector, WriteMode, product, run};

/// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024). PyTorch: `torch.optim.Muon`, which computes the
/// iteration in bf16.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Muon {
    /// The learning rate of the decay.
    pub lr: f64,
    /// The length of a step along every singular vector.
    pub length: f64,
    /// How much of the momentum of the step before stays.
    pub momentum: f64,
    /// Whether the step looks ahead along the momentum.
    pub nesterov: bool,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter.
    pub weight_decay: f64,
    /// The coefficients of the iteration `x = a x + b x³ + c x⁵` of singular values.
    pub coefficients: [f64; 3],
    /// The number of iterations.
    pub iterations: usize,
    /// A momentum with a norm below this is not made longer.
    pub epsilon: f64,
}

compiled! {
    MuonStep:

    /// One step of a matrix with rows of this width:
    ///
    /// ```text
    /// m = momentum m + (1 - momentum) g
    /// x = m        with nesterov x = momentum m + (1 - momentum) g
    /// x = x / max(|x|, epsilon)        then, `iterations` times:        x = a x + (b x xᵀ + c (x xᵀ)²) x
    /// p = p - lr weight_decay p - length x
    /// ```
    ///
    /// # Panics
    /// If the lengths differ.
    #[track_caller]
    pub fn muon_step<E>(p: &mut [E], g: &[E], m: &mut [E], width: usize, muon: &Muon) {
        let len = p.len();
        assert!(
            g.len() == len && m.len() == len,
            "as many gradients and means as parameters"
        );
        if len == 0 {
            return;
        }
        let mut x = Buffer::uninit(len);
        let parts = g.chunks(SMALL).zip(m.chunks_mut(SMALL));
        for_each(parts.zip(x.chunks_mut(SMALL)), |((g, m), x)| {
            run(Momentum { g, m, x, muon });
        });
        let norm = squared_norm(&[&x]).sqrt().max(smallest_norm::<E>(muon.epsilon));
        scale(E::of_f64(1.0 / norm), &mut x);
        for _ in 0..muon.iterations {
            x = iterate(&x, width, muon.coefficients);
        }
        let kept = E::of_f64(1.0 - muon.lr * muon.weight_decay);
        scale(kept, p);
        add_scaled(E::of_f64(-muon.length), &x, p);
    }
}

/// The norm below which a momentum is not made longer. 1 over it is finite, so that a momentum of zeros stays zero.
fn smallest_norm<E: Real>(epsilon: f64) -> f64 {
    epsilon.max(E::MIN_POSITIVE.into())
}

/// `a x + (b x xᵀ + c (x xᵀ)²) x`, or the same as `a x + x (b xᵀ x + c (xᵀ x)²)` where that is the smaller square.
fn iterate<E: Kernels>(numbers: &[E], width: usize, [a, b, c]: [f64; 3]) -> Buffer<E> {
    let height = numbers.len() / width;
    let x = Matrix::new(numbers, height, width);
    let is_wide = height <= width;
    let (first, second) = match is_wide {
        true => (x, x.transposed()),
        false => (x.transposed(), x),
    };
    let size = first.rows();
    let mut gram = Buffer::uninit(size * size);
    let square = MatrixMut::new(&mut gram, size, size);
    product(
        square,
        WriteMode::Overwrite,
        E::ONE,
        first,
        second,
        Threads::All,
    );
    let mut update = scaled(&gram, b);
    let gram = Matrix::new(&gram, size, size);
    let square = MatrixMut::new(&mut update, size, size);
    product(
        square,
        WriteMode::Add,
        E::of_f64(c),
        gram,
        gram,
        Threads::All,
    );
    let update = Matrix::new(&update, size, size);
    let mut new = scaled(numbers, a);
    let (first, second) = match is_wide {
        true => (update, x),
        false => (x, update),
    };
    let to = MatrixMut::new(&mut new, height, width);
    product(to, WriteMode::Add, E::ONE, first, second, Threads::All);
    new
}

fn scaled<E: Real + Pooled>(x: &[E], factor: f64) -> Buffer<E> {
    let mut to = Buffer::uninit(x.len());
    let factor = E::of_f64(factor);
    let parts = x.chunks(SMALL).zip(to.chunks_mut(SMALL));
    for_each(parts, |(x, to)| run(Scaled { x, to, factor }));
    to
}

struct Scaled<'a, E> {
    x: &'a [E],
    to: &'a mut [E],
    factor: E,
}

impl<E: Real> Kernel for Scaled<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, to, factor } = self;
        let factor = V::splat(factor);
        for_lanes!(V, x.len(), [x], [to], {
            store_any(load_any::<V>(x) * factor, to);
        });
    }
}

struct Momentum<'a, E> {
    g: &'a [E],
    m: &'a mut [E],
    x: &'a mut [E],
    muon: &'a Muon,
}

impl<E: Real> Kernel for Momentum<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { g, m, x, muon } = self;
        let kept = V::splat(E::of_f64(muon.momentum));
        let ahead = if muon.nesterov { muon.momentum } else { 1.0 };
        let ahead = V::splat(E::of_f64(ahead));
        for_lanes!(V, g.len(), [g], [m, x], {
            let gradient = load_any::<V>(g);
            let momentum = (load_any::<V>(m) - gradient).mul_add(kept, gradient);
            let momentum = normal_or_zero(momentum);
            store_any(momentum, m);
            store_any((momentum - gradient).mul_add(ahead, gradient), x);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const MUON: Muon = Muon {
        lr: 0.1,
        length: 0.05,
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.2,
        coefficients: [3.4445, -4.775, 2.0315],
        iterations: 5,
        epsilon: 1e-7,
    };

    /// Parameters after three steps.
    fn trained<E: Kernels>(height: usize, width: usize, muon: Muon) -> Vec<E> {
        let mut p = noise::<E>(height * width, 0);
        let mut m = vec![E::ZERO; height * width];
        for step in 1..=3 {
            let g = noise::<E>(height * width, step);
            muon_step(&mut p, &g, &mut m, width, &muon);
        }
        p
    }

    fn matmul(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
        let (rows, cols) = (a.len() / inner, b.len() / inner);
        let mut to = vec![0.0; rows * cols];
        for row in 0..rows {
            for k in 0..inner {
                for col in 0..cols {
                    to[row * cols + col] += a[row * inner + k] * b[k * cols + col];
                }
            }
        }
        to
    }

    fn transposed(a: &[f64], width: usize) -> Vec<f64> {
        let height = a.len() / width;
        let at = |index: usize| a[index % height * width + index / height];
        (0..a.len()).map(at).collect()
    }

    /// The formulas, always with `x xᵀ`.
    fn naive(height: usize, width: usize, muon: Muon) -> Vec<f64> {
        let mut p = noise::<f64>(height * width, 0);
        let mut m = vec![0.0; height * width];
        let [a, b, c] = muon.coefficients;
        for step in 1..=3 {
            let g = noise::<f64>(height * width, step);
            let mut x = g.clone();
            for ((m, g), x) in m.iter_mut().zip(&g).zip(&mut x) {
                *m = muon.momentum * *m + (1.0 - muon.momentum) * g;
                *x = match muon.nesterov {
                    true => muon.momentum * *m + (1.0 - muon.momentum) * g,
                    false => *m,
                };
            }
            let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
            x.iter_mut().for_each(|x| *x /= norm.max(muon.epsilon));
            for _ in 0..muon.iterations {
                let gram = matmul(&x, &transposed(&x, width), width);
                let square = matmul(&gram, &gram, height);
                let update: Vec<_> = gram
                    .iter()
                    .zip(square)
                    .map(|(g, s)| b * g + c * s)
                    .collect();
                let more = matmul(&update, &x, height);
                x = x.iter().zip(more).map(|(x, more)| a * x + more).collect();
            }
            for (p, x) in p.iter_mut().zip(x) {
                *p -= muon.lr * muon.weight_decay * *p + muon.length * x;
            }
        }
        p
    }

    #[test]
    fn a_step_agrees_with_the_formulas() {
        let heavy = Muon {
            nesterov: false,
            ..MUON
        };
        on_every_isa(|isa| {
            for muon in [MUON, heavy] {
                for (height, width) in [(1, 1), (1, 5), (5, 1), (4, 4), (7, 20), (33, 9)] {
                    let want = naive(height, width, muon);
                    let what = format!("{height} x {width} on {isa}");
                    let found = trained::<f64>(height, width, muon);
                    assert_close(&what, &found, &want, Absolute(1e-13));
                    // Each iteration multiplies a rounding of small singular values by up to 3.4445: 500 times in all, in steps of 0.05.
                    let found = trained::<f32>(height, width, muon);
                    assert_close(&what, &found, &want, Absolute(2e-5));
                }
            }
        });
    }

    /// A small epsilon is 0 as an `f32`, and 1 over it is infinite.
    #[test]
    fn a_gradient_of_zeros_makes_no_step() {
        fn step<E: Kernels>(epsilon: f64) {
            let muon = Muon {
                epsilon,
                weight_decay: 0.0,
                ..MUON
            };
            let mut p = noise::<E>(6, 0);
            let before = p.clone();
            muon_step(&mut p, &[E::ZERO; 6], &mut [E::ZERO; 6], 3, &muon);
            assert!(p == before, "{epsilon}");
        }
        for epsilon in [0.0, 1e-300, 1e-40, 1e-7] {
            step::<f32>(epsilon);
            step::<f64>(epsilon);
        }
    }

    #[test]
    fn singular_values_are_about_one() {
        // A diagonal matrix, whose singular values differ by a factor of 10.
        let g = [10.0, 0.0, 0.0, 1.0];
        let mut p = [0.0; 4];
        let muon = Muon {
            length: 1.0,
            ..MUON
        };
        muon_step(&mut p, &g, &mut [0.0_f64; 4], 2, &muon);
        assert!(
            p[0] < -0.6 && p[0] > -1.3 && p[3] < -0.6 && p[3] > -1.3,
            "{p:?}"
        );
        assert_eq!([p[1], p[2]], [0.0; 2]);
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>(150, 190, MUON));
    }
}
