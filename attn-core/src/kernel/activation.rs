//! Activation functions and gated pairs of them, and their derivatives.
//!
//! | | function | PyTorch, `torch.nn.functional.` |
//! | --- | --- | --- |
//! | [`Gelu`] | `x Φ(x)`, with the normal distribution function `Φ` | `gelu(x)` |
//! | [`GeluTanh`] | `x σ(2 √(2/π) (x + 0.044715 x³))` | `gelu(x, approximate="tanh")` |
//! | [`Relu`] | `max(x, 0)` | `relu(x)` |
//! | [`ReluSquared`] | `max(x, 0)²` | `relu(x).square()` |
//! | [`Silu`] | `x σ(x)` | `silu(x)` |
//! | [`Sigmoid`] | `σ(x) = 1 / (1 + e^-x)` | `sigmoid(x)` |
//! | [`Tanh`] | `tanh(x)` | `tanh(x)` |
//!
//! Hendrycks and Gimpel, "Gaussian error linear units" (2016); So et al., "Primer" (2021), for the squared one.
//! A gated pair is `act(left) * right` for the halves of every row: SwiGLU with [`Silu`], GEGLU with [`Gelu`], ReGLU with
//! [`Relu`]; Shazeer, "GLU variants improve transformer" (2020).
//!
//! Infinite arguments have the limits, where there are any; NaN stays NaN.

use super::dropout::Dropped;
use super::elementwise::{map, zip};
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};
use crate::simd::slice::{Map, Zip, load_any, store_any};
use crate::simd::{Kernel, Vector, math, run};

/// A function of one number, with its derivative.
pub trait Activation: Copy + Sync {
    /// The function and its derivative at `x`. Mark it `#[inline(always)]`: what the caller does not use of the two is
    /// not computed then.
    fn value_and_slope<V: Vector>(self, x: V) -> (V, V);
}

/// `y = act(x)`, of which numbers may fall as they are written.
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn forward<'a, E: Real>(
    activation: impl Activation,
    x: &[E],
    y: impl Into<Dropped<&'a mut [E]>>,
) {
    map(x, y, Value(activation));
}

/// `dx = dy * act'(x)`
///
/// # Panics
/// If the lengths differ.
#[track_caller]
pub fn backward<E: Real>(activation: impl Activation, x: &[E], d_y: &[E], d_x: &mut [E]) {
    zip(x, d_y, d_x, Derivative(activation));
}

/// `y = act(x + bias)` for every row, `x [n, h]`, `bias [h]` and `y [n, h]`: for what a product wrote without its bias.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn biased_forward<E: Real>(
    activation: impl Activation,
    x: Matrix<'_, E>,
    bias: &[E],
    y: MatrixMut<'_, E>,
) {
    assert_same((x.rows(), x.cols()), y.rows(), y.cols(), bias.len());
    let chunk = rows_per_task(x.cols());
    let parts = y.row_chunks(chunk).enumerate();
    for_each(parts, |(index, y)| {
        let x = x.some_rows(index * chunk..index * chunk + y.rows());
        run(Biased {
            activation,
            x,
            bias,
            y,
        });
    });
}

/// The derivative of [`biased_forward`] where its result is wanted again: `x` becomes `dx = dy * act'(x + bias)`, and `d_y`
/// becomes `y`.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn biased_backward_in_place<E: Real>(
    activation: impl Activation,
    x: MatrixMut<'_, E>,
    bias: &[E],
    d_y: MatrixMut<'_, E>,
) {
    assert_same((x.rows(), x.cols()), d_y.rows(), d_y.cols(), bias.len());
    let chunk = rows_per_task(x.cols());
    let parts = x.row_chunks(chunk).zip(d_y.row_chunks(chunk));
    for_each(parts, |(x, d_y)| {
        run(Both {
            activation,
            x,
            bias,
            d_y,
        });
    });
}

/// `y = act(left) * right` for the halves of every row of `x + bias`, `x [n, 2 h]`, `bias [2 h]` and `y [n, h]`.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn gated_forward<E: Real>(
    activation: impl Activation,
    x: Matrix<'_, E>,
    bias: &[E],
    y: MatrixMut<'_, E>,
) {
    assert_halves((x.rows(), x.cols()), y.rows(), y.cols());
    assert_bias(x.cols(), bias.len());
    let chunk = rows_per_task(x.cols());
    let parts = y.row_chunks(chunk).enumerate();
    for_each(parts, |(index, y)| {
        let x = x.some_rows(index * chunk..index * chunk + y.rows());
        run(Gated {
            activation,
            x,
            bias,
            y,
        });
    });
}

/// The derivative of [`gated_forward`] without a bias, for `d_y [n, h]` and `d_x [n, 2 h]`, which is overwritten:
/// `dleft = dy * right * act'(left)` and `dright = dy * act(left)`.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn gated_backward<E: Real>(
    activation: impl Activation,
    x: Matrix<'_, E>,
    d_y: Matrix<'_, E>,
    d_x: MatrixMut<'_, E>,
) {
    assert_halves((x.rows(), x.cols()), d_y.rows(), d_y.cols());
    assert!(
        d_x.rows() == x.rows() && d_x.cols() == x.cols(),
        "the gradient is of another shape"
    );
    let chunk = rows_per_task(x.cols());
    let parts = d_x.row_chunks(chunk).enumerate();
    for_each(parts, |(index, d_x)| {
        let rows = index * chunk..index * chunk + d_x.rows();
        run(GatedDerivative {
            activation,
            x: x.some_rows(rows.clone()),
            d_y: d_y.some_rows(rows),
            d_x,
        });
    });
}

/// The derivative of [`gated_forward`] where its result is wanted again: `x` becomes its gradient, and `d_y` the result.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn gated_backward_in_place<E: Real>(
    activation: impl Activation,
    x: MatrixMut<'_, E>,
    bias: &[E],
    d_y: MatrixMut<'_, E>,
) {
    assert_halves((x.rows(), x.cols()), d_y.rows(), d_y.cols());
    assert_bias(x.cols(), bias.len());
    let chunk = rows_per_task(x.cols());
    let parts = x.row_chunks(chunk).zip(d_y.row_chunks(chunk));
    for_each(parts, |(x, d_y)| {
        run(GatedBoth {
            activation,
            x,
            bias,
            d_y,
        });
    });
}

#[track_caller]
fn assert_halves((rows, cols): (usize, usize), of_rows: usize, half: usize) {
    assert!(
        rows == of_rows && cols == 2 * half,
        "({rows} x {cols}) are not the halves of ({of_rows} x {half})"
    );
}

#[track_caller]
fn assert_same((rows, cols): (usize, usize), of_rows: usize, of_cols: usize, bias: usize) {
    assert!(
        rows == of_rows && cols == of_cols,
        "({rows} x {cols}) are not as many as ({of_rows} x {of_cols})"
    );
    assert_bias(cols, bias);
}

#[track_caller]
fn assert_bias(cols: usize, bias: usize) {
    assert!(cols == bias, "a bias of {bias} for {cols} columns");
}

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident: |$x:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Activation for $name {
                #[inline(always)]
                fn value_and_slope<V: Vector>(self, $x: V) -> (V, V) {
                    $body
                }
            }
        )*
    };
}

activations! {
    /// `x Φ(x)`. Its error is absolute, about an epsilon times `x`: `Φ(x)` is `1 + erf(x / √2)`, which cancels far below 0.
    Gelu: |x| {
        let low = bounded_below(x);
        let share = half::<V>() * (one::<V>() + math::erf(low * constant(std::f64::consts::FRAC_1_SQRT_2)));
        let near = bounded_above(low);
        let density = math::exp_of_nonpositive(-half::<V>() * near * near) * constant(FRAC_1_SQRT_2_PI);
        (low * share, near.mul_add(density, share))
    };
    /// The approximation of [`Gelu`] by a logistic function of a polynomial. Its relative error is small everywhere.
    GeluTanh: |x| {
        let low = bounded_below(x);
        let near = bounded_above(low);
        let square = near * near;
        // 2 u and its derivative, with ½ (1 + tanh(u)) = σ(2 u).
        let scale = constant::<V>(2.0 * SQRT_FRAC_2_PI);
        let cubic = constant::<V>(0.044_715) * square;
        let share = math::sigmoid(scale * near * (one::<V>() + cubic));
        let slope = scale * cubic.mul_add(constant(3.0), one());
        (low * share, share * (near * slope).mul_add(one::<V>() - share, one()))
    };
    /// `max(x, 0)`. The derivative is 0 at 0.
    Relu: |x| {
        let zero = V::zero();
        (zero.max(x), V::select(x.le(zero), zero, one()))
    };
    /// `max(x, 0)²`
    ReluSquared: |x| {
        let positive = V::zero().max(x);
        (positive * positive, positive + positive)
    };
    /// `x σ(x)`, also known as swish.
    Silu: |x| {
        let low = bounded_below(x);
        let share = math::sigmoid(low);
        (low * share, share * bounded_above(low).mul_add(one::<V>() - share, one()))
    };
    /// The logistic function.
    Sigmoid: |x| {
        let value = math::sigmoid(x);
        (value, value * (one::<V>() - value))
    };
    /// The hyperbolic tangent.
    Tanh: |x| {
        let value = math::tanh(x);
        (value, one::<V>() - value * value)
    };
}

/// `1 / √(2 π)`
const FRAC_1_SQRT_2_PI: f64 = 0.398_942_280_401_432_7;
/// `√(2 / π)`
const SQRT_FRAC_2_PI: f64 = 0.797_884_560_802_865_4;

/// Below -1000 the logistic function and the normal distribution are 0 in every type, and 0 they shall be times -∞.
#[inline(always)]
fn bounded_below<V: Vector>(x: V) -> V {
    constant::<V>(-1000.0).max(x)
}

/// As [`bounded_below`], on the other side.
#[inline(always)]
fn bounded_above<V: Vector>(x: V) -> V {
    constant::<V>(1000.0).min(x)
}

#[inline(always)]
fn constant<V: Vector>(value: f64) -> V {
    V::splat(V::Element::of_f64(value))
}

#[inline(always)]
fn one<V: Vector>() -> V {
    V::splat(V::Element::ONE)
}

#[inline(always)]
fn half<V: Vector>() -> V {
    V::splat(V::Element::HALF)
}

struct Value<A>(A);

impl<E: Real, A: Activation> Map<E> for Value<A> {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        self.0.value_and_slope(x).0
    }
}

struct Derivative<A>(A);

impl<E: Real, A: Activation> Zip<E> for Derivative<A> {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V, d_y: V) -> V {
        d_y * self.0.value_and_slope(x).1
    }
}

/// A vector of a row, with its bias.
#[inline(always)]
fn load_biased<V: Vector>(x: &[V::Element], bias: &[V::Element]) -> V {
    load_any::<V>(x) + load_any(bias)
}

struct Biased<'a, E, A> {
    activation: A,
    x: Matrix<'a, E>,
    bias: &'a [E],
    y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for Biased<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let (x, bias, y) = (self.x.row(i), self.bias, self.y.row_mut(i));
            for_lanes!(V, y.len(), [x, bias], [y], {
                let (value, _) = self.activation.value_and_slope(load_biased::<V>(x, bias));
                store_any(value, y);
            });
        }
    }
}

struct Both<'a, E, A> {
    activation: A,
    x: MatrixMut<'a, E>,
    bias: &'a [E],
    d_y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for Both<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let (x, bias, d_y) = (self.x.row_mut(i), self.bias, self.d_y.row_mut(i));
            for_lanes!(V, bias.len(), [bias], [x, d_y], {
                let x_biased = load_biased::<V>(x, bias);
                let (value, slope) = self.activation.value_and_slope(x_biased);
                store_any(load_any::<V>(d_y) * slope, x);
                store_any(value, d_y);
            });
        }
    }
}

/// `act(left) * right`, with what its derivative needs.
struct Gate<V> {
    active: V,
    slope: V,
    right: V,
}

#[inline(always)]
fn gate<V: Vector>(activation: impl Activation, left: V, right: V) -> Gate<V> {
    let (active, slope) = activation.value_and_slope(left);
    Gate {
        active,
        slope,
        right,
    }
}

impl<V: Vector> Gate<V> {
    #[inline(always)]
    fn value(&self) -> V {
        self.active * self.right
    }

    /// The gradients of both halves.
    #[inline(always)]
    fn slopes(&self, d_y: V) -> [V; 2] {
        [d_y * self.right * self.slope, d_y * self.active]
    }
}

struct Gated<'a, E, A> {
    activation: A,
    x: Matrix<'a, E>,
    bias: &'a [E],
    y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for Gated<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let y = self.y.row_mut(i);
            let (left, right) = self.x.row(i).split_at(y.len());
            let (of_left, of_right) = self.bias.split_at(y.len());
            for_lanes!(V, y.len(), [left, right, of_left, of_right], [y], {
                let (left, right) = (load_biased(left, of_left), load_biased(right, of_right));
                let gate = gate::<V>(self.activation, left, right);
                store_any(gate.value(), y);
            });
        }
    }
}

struct GatedDerivative<'a, E, A> {
    activation: A,
    x: Matrix<'a, E>,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for GatedDerivative<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let d_y = self.d_y.row(i);
            let (left, right) = self.x.row(i).split_at(d_y.len());
            let (d_left, d_right) = self.d_x.row_mut(i).split_at_mut(d_y.len());
            for_lanes!(V, d_y.len(), [left, right, d_y], [d_left, d_right], {
                let gate = gate::<V>(self.activation, load_any(left), load_any(right));
                let [of_left, of_right] = gate.slopes(load_any(d_y));
                store_any(of_left, d_left);
                store_any(of_right, d_right);
            });
        }
    }
}

struct GatedBoth<'a, E, A> {
    activation: A,
    x: MatrixMut<'a, E>,
    bias: &'a [E],
    d_y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for GatedBoth<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let d_y = self.d_y.row_mut(i);
            let (left, right) = self.x.row_mut(i).split_at_mut(d_y.len());
            let (bias, bias_right) = self.bias.split_at(d_y.len());
            for_lanes!(V, d_y.len(), [bias, bias_right], [left, right, d_y], {
                let active = load_biased(left, bias);
                let gate = gate::<V>(self.activation, active, load_biased(right, bias_right));
                let [of_left, of_right] = gate.slopes(load_any(d_y));
                store_any(of_left, left);
                store_any(of_right, right);
                store_any(gate.value(), d_y);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    /// Applies a test to every activation, with its reference in `f64`.
    macro_rules! for_every_activation {
        ($test:path) => {
            $test(Gelu, gelu);
            $test(GeluTanh, gelu_tanh);
            $test(Relu, |x| x.max(0.0));
            $test(ReluSquared, |x| x.max(0.0).powi(2));
            $test(Silu, |x| x * logistic(x));
            $test(Sigmoid, logistic);
            $test(Tanh, f64::tanh);
        };
    }

    fn gelu(x: f64) -> f64 {
        0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }

    fn gelu_tanh(x: f64) -> f64 {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        0.5 * x * (1.0 + inner.tanh())
    }

    fn logistic(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn values<E: Real>(activation: impl Activation, x: &[E]) -> Vec<E> {
        let mut y = vec![E::NAN; x.len()];
        forward(activation, x, &mut y[..]);
        y
    }

    fn slopes<E: Real>(activation: impl Activation, x: &[E]) -> Vec<E> {
        let mut d_x = vec![E::NAN; x.len()];
        backward(activation, x, &vec![E::ONE; x.len()], &mut d_x);
        d_x
    }

    #[test]
    fn values_are_within_an_epsilon_of_the_argument() {
        fn test<A: Activation>(activation: A, f: fn(f64) -> f64) {
            let what = std::any::type_name::<A>();
            on_every_isa(|isa| {
                // From -20 to 20, without 0.
                let x: Vec<f64> = (0..4000).map(|i| (f64::from(i) - 1999.5) * 0.01).collect();
                let near = |got: f64, x: f64, epsilon: f64| {
                    // Of the value where it is large; of the argument where a share of it cancels.
                    let scale = f(x).abs().max(x.abs()).max(1.0);
                    let error = (got - f(x)).abs();
                    assert!(
                        error <= 2.0 * epsilon * scale,
                        "{what}({x}) on {isa}: {got}"
                    );
                };
                for (&x, y) in x.iter().zip(values(activation, &x)) {
                    near(y, x, f64::EPSILON);
                }
                let x: Vec<f32> = x.iter().map(|&x| x as f32).collect();
                for (&x, y) in x.iter().zip(values(activation, &x)) {
                    near(f64::from(y), f64::from(x), f64::from(f32::EPSILON));
                }
            });
        }
        for_every_activation!(test);
    }

    #[test]
    fn logistic_tails_are_relatively_exact() {
        let x: Vec<f64> = (1..60).map(|i| -0.5 * f64::from(i)).collect();
        for (&x, y) in x.iter().zip(values(Silu, &x)) {
            let want = x * x.exp() / (1.0 + x.exp());
            assert!((y / want - 1.0).abs() < 1e-14, "{x}: {y}");
        }
        let x = &x[..8];
        for (&x, y) in x.iter().zip(values(GeluTanh, x)) {
            let e = (2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).exp();
            // The exponent is about 20, which its rounding error is multiplied with.
            assert!((y / (x * e / (1.0 + e)) - 1.0).abs() < 1e-13, "{x}: {y}");
        }
    }

    #[test]
    fn slopes_are_the_derivatives() {
        fn test<A: Activation>(activation: A, f: fn(f64) -> f64) {
            let what = std::any::type_name::<A>();
            let x: Vec<f64> = (0..400).map(|i| (f64::from(i) - 199.5) * 0.05).collect();
            let want: Vec<f64> = x
                .iter()
                .map(|&x| differences(&[x], |x| f(x[0]))[0])
                .collect();
            on_every_isa(|isa| {
                // A rounding error of 1e-15 times 10, over a step of 1e-5, and the third derivative.
                assert_near(
                    &slopes(activation, &x),
                    &want,
                    2e-9,
                    &format!("{what} on {isa}"),
                );
            });
        }
        for_every_activation!(test);
    }

    #[test]
    fn conventions_at_zero_and_limits() {
        fn limits<A: Activation>(activation: A, _: fn(f64) -> f64) {
            fn of<E: Real + std::fmt::Display>(activation: impl Activation, what: &str) {
                let x = [E::NAN, E::ZERO, E::of_f64(1e30), E::of_f64(-1e30)];
                let (y, d) = (values(activation, &x), slopes(activation, &x));
                assert!(y[0] != y[0], "{what}");
                assert!(
                    y[1..].iter().chain(&d[1..]).all(|y| y == y),
                    "{what}: {y:?} {d:?}"
                );
                let x = [E::INFINITY, -E::INFINITY];
                let (y, d) = (values(activation, &x), slopes(activation, &x));
                assert!(y.iter().chain(&d).all(|y| y == y), "{what}: {y:?} {d:?}");
                assert!(y[1] == E::ZERO || y[1] == -E::ONE, "{what}: {y:?}");
                assert!(y[0] == E::ONE || y[0] == E::INFINITY, "{what}: {y:?}");
                assert_eq!(d[1], E::ZERO, "{what}");
            }
            on_every_isa(|isa| {
                let what = format!("{} on {isa}", std::any::type_name::<A>());
                of::<f32>(activation, &what);
                of::<f64>(activation, &what);
            });
        }
        for_every_activation!(limits);
        assert_eq!(
            slopes(Relu, &[0.0_f32, -0.0, 1e-30, -1e-30]),
            [0.0, 0.0, 1.0, 0.0]
        );
        assert_eq!(
            slopes(ReluSquared, &[0.0_f32, 3.0, f32::INFINITY]),
            [0.0, 6.0, f32::INFINITY]
        );
        assert_eq!(slopes(Gelu, &[0.0, f64::INFINITY]), [0.5, 1.0]);
        assert_eq!(slopes(Silu, &[0.0, f64::INFINITY]), [0.5, 1.0]);
        assert_eq!(slopes(GeluTanh, &[0.0, f64::INFINITY]), [0.5, 1.0]);
    }

    fn gated<E: Real>(activation: impl Activation, x: &[E], half: usize) -> Vec<E> {
        let rows = x.len() / (2 * half);
        let mut y = vec![E::NAN; rows * half];
        let to = MatrixMut::new(&mut y, rows, half);
        let none = vec![E::ZERO; 2 * half];
        gated_forward(activation, Matrix::new(x, rows, 2 * half), &none, to);
        y
    }

    #[test]
    fn a_gate_is_the_activated_left_half_times_the_right_one() {
        const ROWS: usize = 100;
        on_every_isa(|isa| {
            for half in LENGTHS[1..].iter().copied() {
                let x = noise::<f64>(ROWS * 2 * half, 1);
                let d_y = noise::<f64>(ROWS * half, 2);
                let what = format!("{half} on {isa}");
                let (mut want_y, mut want_d_x) = (Vec::new(), Vec::new());
                for (row, d_y) in x.chunks(2 * half).zip(d_y.chunks(half)) {
                    let (left, right) = row.split_at(half);
                    let (values, slopes) = (values(Silu, left), slopes(Silu, left));
                    want_y.extend((0..half).map(|j| values[j] * right[j]));
                    want_d_x.extend((0..half).map(|j| d_y[j] * right[j] * slopes[j]));
                    want_d_x.extend((0..half).map(|j| d_y[j] * values[j]));
                }
                assert_eq!(gated(Silu, &x, half), want_y, "{what}");
                let mut d_x = vec![f64::NAN; x.len()];
                gated_backward(
                    Silu,
                    Matrix::new(&x, ROWS, 2 * half),
                    Matrix::new(&d_y, ROWS, half),
                    MatrixMut::new(&mut d_x, ROWS, 2 * half),
                );
                assert_eq!(d_x, want_d_x, "{what}");

                // With a bias, as of the sums.
                let bias: Vec<f64> = (0..2 * half).map(|j| j as f64).collect();
                let biases = bias.iter().cycle();
                let sums: Vec<f64> = x.iter().zip(biases).map(|(x, b)| x + b).collect();
                let mut y = vec![f64::NAN; ROWS * half];
                let to = MatrixMut::new(&mut y, ROWS, half);
                gated_forward(Silu, Matrix::new(&x, ROWS, 2 * half), &bias, to);
                assert_eq!(y, gated(Silu, &sums, half), "{what}");

                let mut want_d_x = vec![f64::NAN; x.len()];
                gated_backward(
                    Silu,
                    Matrix::new(&sums, ROWS, 2 * half),
                    Matrix::new(&d_y, ROWS, half),
                    MatrixMut::new(&mut want_d_x, ROWS, 2 * half),
                );
                let (mut d_x, mut y) = (x, d_y);
                let x = MatrixMut::new(&mut d_x, ROWS, 2 * half);
                gated_backward_in_place(Silu, x, &bias, MatrixMut::new(&mut y, ROWS, half));
                assert_eq!((y, d_x), (gated(Silu, &sums, half), want_d_x), "{what}");
            }
        });
    }

    #[test]
    fn in_place_are_both_the_value_and_the_derivative() {
        fn test<A: Activation>(activation: A, _: fn(f64) -> f64) {
            on_every_isa(|isa| {
                for (rows, cols) in LENGTHS.into_iter().map(|len| (3, len)).chain([(90, 401)]) {
                    let [x, d_y] = [1, 2].map(|seed| noise::<f32>(rows * cols, seed));
                    let bias = noise(cols, 3);
                    let biases = bias.iter().cycle();
                    let sums: Vec<f32> = x.iter().zip(biases).map(|(x, b)| x + b).collect();
                    let (mut want, mut y) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
                    backward(activation, &sums, &d_y, &mut want);
                    let to = MatrixMut::new(&mut y, rows, cols);
                    biased_forward(activation, Matrix::new(&x, rows, cols), &bias, to);
                    let what = format!("{rows} x {cols} on {isa}");
                    assert_eq!(y, values(activation, &sums), "{what}");
                    let (mut d_x, mut y) = (x, d_y);
                    biased_backward_in_place(
                        activation,
                        MatrixMut::new(&mut d_x, rows, cols),
                        &bias,
                        MatrixMut::new(&mut y, rows, cols),
                    );
                    assert_eq!((y, d_x), (values(activation, &sums), want), "{what}");
                }
            });
        }
        for_every_activation!(test);
    }

    #[test]
    #[should_panic(expected = "a bias of 2 for 3 columns")]
    fn there_is_a_bias_for_every_column() {
        let x = Matrix::new(&[0.0; 3], 1, 3);
        biased_forward(Relu, x, &[0.0; 2], MatrixMut::new(&mut [0.0; 3], 1, 3));
    }

    #[test]
    fn gated_gradients_are_the_derivatives() {
        let (x, d_y) = (noise::<f64>(2 * 6, 1), noise::<f64>(2 * 3, 2));
        let loss = |x: &[f64]| -> f64 {
            let y = gated(Gelu, x, 3);
            y.iter().zip(&d_y).map(|(y, d)| y * d).sum()
        };
        let mut d_x = vec![f64::NAN; x.len()];
        gated_backward(
            Gelu,
            Matrix::new(&x, 2, 6),
            Matrix::new(&d_y, 2, 3),
            MatrixMut::new(&mut d_x, 2, 6),
        );
        assert_near(&d_x, &differences(&x, loss), 1e-9, "gated");
    }

    #[test]
    fn threads_change_no_bit() {
        let (rows, half) = (300, 65);
        let (x, d_y) = (
            noise::<f32>(rows * 2 * half, 1),
            noise::<f32>(rows * half, 2),
        );
        same_for_all_threads(|| {
            let mut d_x = vec![0.0; x.len()];
            gated_backward(
                Gelu,
                Matrix::new(&x, rows, 2 * half),
                Matrix::new(&d_y, rows, half),
                MatrixMut::new(&mut d_x, rows, 2 * half),
            );
            (
                values(Tanh, &x),
                slopes(Gelu, &x),
                gated(Gelu, &x, half),
                d_x,
            )
        });
    }
}
