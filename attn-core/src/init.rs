//! Initial values of parameters.
//!
//! Each function fills a tensor in place, for use in the closure of
//! [`TensorOptions::reset_with`](dfdx::nn::TensorOptions::reset_with): `|t| init::uniform(t, 0.1)`. The random ones draw from the
//! device's own generator, so the seed of the device determines them.

use std::cell::Cell;

use dfdx::{
    shapes::{HasShape, Rank1, Rank2, Rank3, Shape},
    tensor::{Tensor, ZerosTensor},
    tensor_ops::Device,
};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal, Uniform};

use crate::Element;

/// Uniform values in `[-bound, bound]`; `torch.nn.init.uniform_(t, -bound, bound)`.
pub fn uniform<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
    bound: f64,
) -> Result<(), D::Err> {
    let bound = E::of(bound.abs());
    t.try_fill_with_distr(Uniform::new_inclusive(-bound, bound))
}

/// Normal values of mean 0; `torch.nn.init.normal_(t, std=std)`.
pub fn normal<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
    std: f64,
) -> Result<(), D::Err> {
    t.try_fill_with_distr(Normal { std })
}

/// Zeros.
pub fn zeros<S: Shape, E: Element, D: Device<E>>(t: &mut Tensor<S, E, D>) -> Result<(), D::Err> {
    t.try_fill_with_zeros()
}

/// Ones.
pub fn ones<S: Shape, E: Element, D: Device<E>>(t: &mut Tensor<S, E, D>) -> Result<(), D::Err> {
    t.try_fill_with_ones()
}

/// A constant; `torch.nn.init.constant_(t, value)`.
pub fn constant<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
    value: f64,
) -> Result<(), D::Err> {
    t.try_fill_with_distr(Constant(E::of(value)))
}

/// The slopes of Press et al., "Train short, test long" (2022), one per head. Let `m` be the largest power of two that is at most
/// the number of heads. The first `m` slopes are the sequence `2^(-8 i / m)`. The others are every second element of the sequence
/// for `2 m`.
pub fn alibi_slopes<const H: usize, E: Element, D: Device<E>>(
    t: &mut Tensor<Rank1<H>, E, D>,
) -> Result<(), D::Err> {
    let m = 1 << H.max(1).ilog2();
    let exponent = |head: usize| match head.checked_sub(m) {
        None => 8.0 * (head + 1) as f64 / m as f64,
        Some(rest) => 4.0 * (2 * rest + 1) as f64 / m as f64,
    };
    let slopes: Vec<_> = (0..H).map(|head| E::of((-exponent(head)).exp2())).collect();
    t.copy_from(&slopes);
    Ok(())
}

/// Normal values of mean 0 within two standard deviations; `torch.nn.init.trunc_normal_(t, std=std, a=-2*std, b=2*std)`.
pub fn truncated_normal<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
    std: f64,
) -> Result<(), D::Err> {
    t.try_fill_with_distr(TruncatedNormal { std })
}

/// A random matrix `[out, in ..]` with perpendicular rows of length 1, or columns if these are longer (Saxe et al. 2014);
/// `torch.nn.init.orthogonal_(t)`.
pub fn orthogonal<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
) -> Result<(), D::Err> {
    // dfdx cannot fill a tensor without elements.
    if t.shape().num_elements() == 0 {
        return Ok(());
    }
    normal(t, 1.0)?;
    let numbers = t.as_vec();
    let rows = t.shape().concrete().into_iter().next().unwrap_or(1);
    let cols = numbers.len().checked_div(rows).unwrap_or(0);
    // The vectors of the longer side are as many as the shorter one is long.
    let [count, stride, step] = match rows <= cols {
        true => [rows, cols, 1],
        false => [cols, 1, cols],
    };
    let length = rows.max(cols);
    let place = |vector: usize, index: usize| vector * stride + index * step;
    let mut vectors: Vec<Vec<f64>> = Vec::with_capacity(count);
    for vector in 0..count {
        let numbers = (0..length).map(|index| numbers[place(vector, index)].into());
        vectors.push(perpendicular(numbers.collect(), &vectors));
    }
    let mut numbers = numbers;
    for (vector, values) in vectors.iter().enumerate() {
        for (index, value) in values.iter().enumerate() {
            numbers[place(vector, index)] = E::of(*value);
        }
    }
    t.copy_from(&numbers);
    Ok(())
}

/// The vector without its parts along `others`, which have length 1, scaled to length 1 (Gram-Schmidt). Rounding leaves small parts along
/// them, so the vector is made perpendicular twice.
fn perpendicular(mut vector: Vec<f64>, others: &[Vec<f64>]) -> Vec<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for other in others.iter().chain(others) {
        let along = dot(&vector, other);
        let parts = vector.iter_mut().zip(other);
        parts.for_each(|(number, other)| *number -= along * other);
    }
    let length = dot(&vector, &vector).sqrt();
    vector.iter_mut().for_each(|number| *number /= length);
    vector
}

/// The distribution of a tensor before training, where it differs from the layer's own.
///
/// The fans of a tensor are PyTorch's: `in` and `out` of a matrix `[out, in]`; further axes multiply both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// One number; `torch.nn.init.constant_(t, value)`.
    Constant {
        /// The number.
        value: f64,
    },
    /// Uniform in `[-bound, bound]`; `torch.nn.init.uniform_(t, -bound, bound)`.
    Uniform {
        /// The largest number.
        bound: f64,
    },
    /// Uniform in `[-bound, bound]` with `bound = sqrt(6 / (fan_in + fan_out))`; `torch.nn.init.xavier_uniform_(t)`.
    XavierUniform,
    /// Uniform in `[-bound, bound]` with `bound = sqrt(6 / fan_in)`; `torch.nn.init.kaiming_uniform_(t)`.
    KaimingUniform,
    /// Normal with mean 0; `torch.nn.init.normal_(t, std=std)`.
    Normal {
        /// The standard deviation.
        std: f64,
    },
    /// Normal with mean 0 and standard deviation `sqrt(2 / (fan_in + fan_out))`; `torch.nn.init.xavier_normal_(t)`.
    XavierNormal,
    /// Normal with mean 0 and standard deviation `sqrt(2 / fan_in)`; `torch.nn.init.kaiming_normal_(t)`.
    KaimingNormal,
    /// [`truncated_normal`].
    TruncatedNormal {
        /// The standard deviation before the numbers beyond two of it are drawn again.
        std: f64,
    },
    /// [`orthogonal`].
    Orthogonal,
}

thread_local! {
    /// The distribution for the layer that is being visited. dfdx initialises a tensor with a function without an environment, so
    /// a module cannot pass the distribution to its fields in another way.
    static REQUESTED: Cell<Option<Initial>> = const { Cell::new(None) };
}

impl Initial {
    /// Applies this distribution to the layers that `visit` initialises.
    pub(crate) fn within<R>(self, visit: impl FnOnce() -> R) -> R {
        let _outer = Outer(REQUESTED.replace(Some(self)));
        visit()
    }

    /// The distribution of the layer that is being visited.
    pub(crate) fn requested() -> Option<Initial> {
        REQUESTED.get()
    }

    /// Fills a tensor.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn fill<S: Shape, E: Element, D: Device<E>>(
        self,
        t: &mut Tensor<S, E, D>,
    ) -> Result<(), D::Err> {
        let [input, output] = fans(&t.shape().concrete().into_iter().collect::<Vec<_>>());
        let root = |gain: f64, fans: usize| (gain / fans.max(1) as f64).sqrt();
        match self {
            Initial::Constant { value } => constant(t, value),
            Initial::Uniform { bound } => uniform(t, bound),
            Initial::Normal { std } => normal(t, std),
            Initial::TruncatedNormal { std } => truncated_normal(t, std),
            Initial::XavierUniform => uniform(t, root(6.0, input.saturating_add(output))),
            Initial::XavierNormal => normal(t, root(2.0, input.saturating_add(output))),
            Initial::KaimingUniform => uniform(t, root(6.0, input)),
            Initial::KaimingNormal => normal(t, root(2.0, input)),
            Initial::Orthogonal => orthogonal(t),
        }
    }
}

/// The earlier setting. Dropping restores it.
struct Outer(Option<Initial>);

impl Drop for Outer {
    fn drop(&mut self) {
        REQUESTED.set(self.0);
    }
}

/// The fans `in` and `out`.
fn fans(sizes: &[usize]) -> [usize; 2] {
    let [output, input, rest @ ..] = sizes else {
        return [sizes.iter().product(); 2];
    };
    let rest: usize = rest.iter().product();
    [input * rest, output * rest]
}

/// Fills the weight of a layer with the requested distribution, or else by `own`.
pub(crate) fn weight<S: Shape, E: Element, D: Device<E>>(
    t: &mut Tensor<S, E, D>,
    own: impl FnOnce(&mut Tensor<S, E, D>) -> Result<(), D::Err>,
) -> Result<(), D::Err> {
    match Initial::requested() {
        None => own(t),
        Some(initial) => initial.fill(t),
    }
}

/// [`weight`] for several matrices: each has the distribution of one alone.
pub(crate) fn matrices<const G: usize, const O: usize, const I: usize, E: Element, D: Device<E>>(
    t: &mut Tensor<Rank3<G, O, I>, E, D>,
    own: impl FnOnce(&mut Tensor<Rank3<G, O, I>, E, D>) -> Result<(), D::Err>,
) -> Result<(), D::Err> {
    let Some(initial) = Initial::requested() else {
        return own(t);
    };
    // dfdx cannot list the numbers of an empty tensor.
    if G * O * I == 0 {
        return Ok(());
    }
    let mut numbers = Vec::with_capacity(G * O * I);
    for _ in 0..G {
        let mut one: Tensor<Rank2<O, I>, E, D> = ZerosTensor::<E>::try_zeros(t.device())?;
        initial.fill(&mut one)?;
        numbers.extend(one.as_vec());
    }
    t.copy_from(&numbers);
    Ok(())
}

/// The distribution of a constant.
struct Constant<E>(E);

impl<E: Element> Distribution<E> for Constant<E> {
    fn sample<R: Rng + ?Sized>(&self, _: &mut R) -> E {
        self.0
    }
}

/// A normal distribution of any element type. It samples in `f64`, because `StandardNormal: Distribution<E>` would be one more
/// bound on every layer and on all code that is generic over layers.
struct Normal {
    std: f64,
}

impl<E: Element> Distribution<E> for Normal {
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> E {
        let z: f64 = StandardNormal.sample(rng);
        E::of(self.std * z)
    }
}

/// The same within two standard deviations.
struct TruncatedNormal {
    std: f64,
}

impl<E: Element> Distribution<E> for TruncatedNormal {
    fn sample<R: Rng + ?Sized>(&self, rng: &mut R) -> E {
        let z = std::iter::repeat_with(|| -> f64 { StandardNormal.sample(rng) });
        let z = { z }.find(|z| z.abs() <= 2.0);
        E::of(self.std * z.unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;

    const N: usize = 40_000;

    fn filled(fill: impl Fn(&mut Tensor<Rank1<N>, f64, Cpu>) -> Result<(), CpuError>) -> Vec<f64> {
        let mut t = Cpu::seed_from_u64(1).zeros();
        fill(&mut t).expect("the Cpu has memory");
        t.as_vec()
    }

    fn mean(x: impl Iterator<Item = f64>) -> f64 {
        x.sum::<f64>() / N as f64
    }

    #[test]
    fn uniform_fills_its_interval() {
        let x = filled(|t| uniform(t, 0.5));
        assert!(x.iter().all(|v| v.abs() <= 0.5));
        // Standard error of the mean: 0.5 / sqrt(3 * 40000) = 0.0014; of the variance: about 0.0004. Both times 5.
        assert!(mean(x.iter().copied()).abs() < 0.0072);
        assert!((mean(x.iter().map(|v| v * v)) - 0.25 / 3.0).abs() < 0.002);
    }

    #[test]
    fn uniform_of_bound_zero_is_zero() {
        assert!(filled(|t| uniform(t, 0.0)).iter().all(|&v| v == 0.0));
    }

    #[test]
    fn normal_has_the_requested_standard_deviation() {
        let x = filled(|t| normal(t, 0.02));
        // Standard error of the mean: 0.02 / sqrt(40000) = 1e-4; of the variance: 0.0004 * sqrt(2 / 40000) = 2.8e-6.
        // Both times 5.
        assert!(mean(x.iter().copied()).abs() < 5e-4);
        assert!((mean(x.iter().map(|v| v * v)) - 4e-4).abs() < 1.4e-5);
        // The largest of so many uniform numbers of the same variance would be 1.73 standard deviations.
        assert!(x.iter().any(|v| v.abs() > 0.06));
    }

    /// The mean square of a matrix that is initialised with zeros by default.
    fn square_of_matrix() -> f64 {
        let mut t: Tensor<Rank2<100, 400>, f64, Cpu> = Cpu::seed_from_u64(1).zeros();
        weight(&mut t, zeros).expect("the Cpu has memory");
        mean(t.as_vec().into_iter().map(|v| v * v))
    }

    #[test]
    fn a_matrix_has_the_requested_distribution() {
        // The variance of a uniform is a third of its bound's square. 40000 numbers determine it up to 0.5%; times 5.
        let asked = [
            (Initial::Normal { std: 0.02 }, 4e-4),
            (Initial::XavierUniform, 2.0 / 500.0),
            (Initial::KaimingUniform, 2.0 / 400.0),
            (Initial::XavierNormal, 2.0 / 500.0),
            (Initial::KaimingNormal, 2.0 / 400.0),
            (Initial::Uniform { bound: 0.3 }, 0.03),
            (Initial::Constant { value: -0.5 }, 0.25),
            // The variance of a normal distribution within two standard deviations: 1 - 4 φ(2) / (2 Φ(2) - 1).
            (Initial::TruncatedNormal { std: 0.1 }, 0.01 * 0.773_741),
            (Initial::Orthogonal, 1.0 / 400.0),
        ];
        for (initial, expected) in asked {
            let found = initial.within(square_of_matrix);
            assert!(
                (found / expected - 1.0).abs() < 0.035,
                "{initial:?}: {found}"
            );
        }
    }

    #[test]
    fn each_of_several_matrices_has_the_distribution_of_one() {
        let mut t: Tensor<Rank3<3, 4, 4>, f64, Cpu> = Cpu::seed_from_u64(1).zeros();
        let fill = || matrices(&mut t, zeros);
        Initial::Orthogonal
            .within(fill)
            .expect("the Cpu has memory");
        let x = t.as_vec();
        assert_ne!(x[..16], x[16..32]);
        for matrix in x.chunks(16) {
            for (a, b) in (0..16).map(|pair| (pair / 4, pair % 4)) {
                let product: f64 = (0..4).map(|i| matrix[a * 4 + i] * matrix[b * 4 + i]).sum();
                // Sums of 4 products, each rounded.
                assert!((product - f64::from(u8::from(a == b))).abs() < 1e-14);
            }
        }
        let mut wide: Tensor<Rank3<100, 4, 100>, f64, Cpu> = Cpu::seed_from_u64(1).zeros();
        let fill = || matrices(&mut wide, zeros);
        Initial::KaimingUniform
            .within(fill)
            .expect("the Cpu has memory");
        let square = mean(wide.as_vec().into_iter().map(|v| v * v));
        // 40000 numbers determine the mean square up to 0.5%, and up to 0.7% if they are normal; times 5.
        assert!((square / (2.0 / 100.0) - 1.0).abs() < 0.035, "{square}");
    }

    #[test]
    fn a_truncated_normal_is_within_two_standard_deviations() {
        let x = filled(|t| truncated_normal(t, 0.5));
        let largest = x.iter().fold(0.0_f64, |largest, v| largest.max(v.abs()));
        // A 20th of normal numbers lies beyond. Of so many within, one is close to the end.
        assert!((0.99..=1.0).contains(&largest), "{largest}");
    }

    #[test]
    fn orthogonal_vectors_of_the_longer_side_are_perpendicular_and_of_length_1() {
        fn check<const O: usize, const I: usize>() {
            let mut t: Tensor<Rank2<O, I>, f64, Cpu> = Cpu::seed_from_u64(1).zeros();
            orthogonal(&mut t).expect("the Cpu has memory");
            let x = t.as_vec();
            let number = |vector: usize, index: usize| match O <= I {
                true => x[vector * I + index],
                false => x[index * I + vector],
            };
            for a in 0..O.min(I) {
                for b in 0..O.min(I) {
                    let products = (0..O.max(I)).map(|index| number(a, index) * number(b, index));
                    let product: f64 = products.sum();
                    let expected = f64::from(u8::from(a == b));
                    // Sums of up to 7 products, each rounded.
                    assert!((product - expected).abs() < 1e-14, "{a} {b}: {product}");
                }
            }
        }
        check::<3, 7>();
        check::<7, 3>();
        check::<5, 5>();
        check::<1, 4>();
        let mut empty: Tensor<Rank2<0, 4>, f64, Cpu> = Cpu::default().zeros();
        assert!(orthogonal(&mut empty).is_ok());
    }

    #[test]
    fn further_axes_multiply_both_fans() {
        assert_eq!(fans(&[3, 5]), [5, 3]);
        assert_eq!(fans(&[3, 5, 2, 2]), [20, 12]);
        assert_eq!(fans(&[3]), [3, 3]);
        assert_eq!(fans(&[]), [1, 1]);
    }

    #[test]
    fn a_requested_distribution_ends_with_the_visit_also_after_a_panic() {
        let inner = Initial::Normal { std: 2.0 };
        let outer = Initial::Normal { std: 1.0 };
        outer.within(|| {
            let inner = std::panic::catch_unwind(|| inner.within(|| panic!("in a visit")));
            assert!(inner.is_err());
            assert_eq!(REQUESTED.get(), Some(outer));
        });
        assert_eq!(square_of_matrix(), 0.0);
    }

    #[test]
    fn zeros_and_ones_are_constant() {
        assert!(filled(ones).iter().all(|&v| v == 1.0));
        assert!(
            filled(|t| {
                ones(t)?;
                zeros(t)
            })
            .iter()
            .all(|&v| v == 0.0)
        );
    }

    #[test]
    fn the_seed_of_the_device_determines_the_values() {
        assert_eq!(filled(|t| normal(t, 1.0)), filled(|t| normal(t, 1.0)));
    }
}
