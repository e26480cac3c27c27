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

use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, math, run};

/// A function of one number, with its derivative.
pub trait Activation: Copy + Sync {
    /// The function and its derivative at `x`. Mark it `#[inline(always)]`: what the caller does not use of the two is
    /// not computed then.
    fn value_and_slope<V: Vector>(self, x: V) -> (V, V);
}

/// The function at `x`.
#[inline(always)]
pub fn value<V: Vector>(activation: impl Activation, x: V) -> V {
    activation.value_and_slope(x).0
}

/// The derivative at `x`.
#[inline(always)]
pub fn slope<V: Vector>(activation: impl Activation, x: V) -> V {
    activation.value_and_slope(x).1
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
        run(BiasedBackwardInPlace {
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
        run(GatedBackward {
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
        run(GatedBackwardInPlace {
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
            let x = self.x.row(i);
            let bias = self.bias;
            let y = self.y.row_mut(i);
            for_lanes!(V, y.len(), [x, bias], [y], {
                let (value, _) = self.activation.value_and_slope(load_biased::<V>(x, bias));
                store_any(value, y);
            });
        }
    }
}

struct BiasedBackwardInPlace<'a, E, A> {
    activation: A,
    x: MatrixMut<'a, E>,
    bias: &'a [E],
    d_y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for BiasedBackwardInPlace<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let x = self.x.row_mut(i);
            let bias = self.bias;
            let d_y = self.d_y.row_mut(i);
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
fn gate<V: Vector>(activation: impl Activation, [left, right]: [V; 2]) -> Gate<V> {
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
            let (bias_left, bias_right) = self.bias.split_at(y.len());
            for_lanes!(V, y.len(), [left, right, bias_left, bias_right], [y], {
                let halves = [load_biased(left, bias_left), load_biased(right, bias_right)];
                let gate = gate::<V>(self.activation, halves);
                store_any(gate.value(), y);
            });
        }
    }
}

struct GatedBackward<'a, E, A> {
    activation: A,
    x: Matrix<'a, E>,
    d_y: Matrix<'a, E>,
    d_x: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for GatedBackward<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let d_y = self.d_y.row(i);
            let (left, right) = self.x.row(i).split_at(d_y.len());
            let (d_left, d_right) = self.d_x.row_mut(i).split_at_mut(d_y.len());
            for_lanes!(V, d_y.len(), [left, right, d_y], [d_left, d_right], {
                let gate = gate::<V>(self.activation, [load_any(left), load_any(right)]);
                let [of_left, of_right] = gate.slopes(load_any(d_y));
                store_any(of_left, d_left);
                store_any(of_right, d_right);
            });
        }
    }
}

struct GatedBackwardInPlace<'a, E, A> {
    activation: A,
    x: MatrixMut<'a, E>,
    bias: &'a [E],
    d_y: MatrixMut<'a, E>,
}

impl<E: Real, A: Activation> Kernel for GatedBackwardInPlace<'_, E, A> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for i in 0..self.x.rows() {
            let d_y = self.d_y.row_mut(i);
            let (left, right) = self.x.row_mut(i).split_at_mut(d_y.len());
            let (bias_left, bias_right) = self.bias.split_at(d_y.len());
            for_lanes!(V, d_y.len(), [bias_left, bias_right], [left, right, d_y], {
                let halves = [load_biased(left, bias_left), load_biased(right, bias_right)];
                let gate = gate::<V>(self.activation, halves);
                let [of_left, of_right] = gate.slopes(load_any(d_y));
                store_any(of_left, left);
                store_any(of_right, right);
                store_any(gate.value(), d_y);
            });
        }
    }
}

#[cfg(test)]
mod tests;
