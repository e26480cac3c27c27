//! Numbers that carry their derivative.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::{
    Element,
    kernel::attention::{PairFunction, TileOrigin},
};

/// A score, and the derivative of what was computed of it: a dual number.
///
/// A function for [`Attend::score_by`](super::Attend::score_by) computes with it as with a number. Its operands are others of them, or numbers
/// of the element type. Constants have the derivative 0.
///
/// ```
/// use attn::ops::Dual;
///
/// // 2 tanh(x / 2), at x = 1, by the score.
/// let y = 2.0 * (Dual::variable(1.0_f64) / 2.0).tanh();
/// assert_eq!(y.value(), 2.0 * 0.5_f64.tanh());
/// assert!((y.slope() - (1.0 - 0.5_f64.tanh().powi(2))).abs() < 1e-15);
/// ```
///
/// Wengert, "A simple automatic derivative evaluation program" (1964). PyTorch: `torch.func.jvp`.
#[doc(alias("DualNumber", "jvp", "forward_mode"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dual<E> {
    value: E,
    slope: E,
}

impl<E: Element> Dual<E> {
    /// A number that the derivative is taken by.
    pub fn variable(value: E) -> Self {
        let slope = E::one();
        Self { value, slope }
    }

    /// A number that does not depend on the score.
    pub fn constant(value: E) -> Self {
        let slope = E::zero();
        Self { value, slope }
    }

    /// The number.
    pub fn value(self) -> E {
        self.value
    }

    /// Its derivative by the score.
    pub fn slope(self) -> E {
        self.slope
    }

    /// `f(x)`, where `slope` is the derivative of `f` there.
    ///
    /// ```
    /// use attn::ops::Dual;
    ///
    /// let x = Dual::variable(0.5_f64);
    /// let y = x.chain(x.value().asinh(), 1.0 / (x.value().powi(2) + 1.0).sqrt());
    /// assert_eq!(y.value(), 0.5_f64.asinh());
    /// ```
    #[must_use]
    pub fn chain(self, value: E, slope: E) -> Self {
        let slope = self.slope * slope;
        Self { value, slope }
    }

    /// `e^x`
    #[must_use]
    pub fn exp(self) -> Self {
        let exp = self.value.exp();
        self.chain(exp, exp)
    }

    /// The natural logarithm.
    #[must_use]
    pub fn ln(self) -> Self {
        self.chain(self.value.ln(), self.value.recip())
    }

    /// The square root.
    #[must_use]
    pub fn sqrt(self) -> Self {
        let root = self.value.sqrt();
        self.chain(root, (root + root).recip())
    }

    /// A power.
    #[must_use]
    pub fn powi(self, n: i32) -> Self {
        let slope = match n {
            0 => E::zero(),
            _ => E::of(f64::from(n)) * self.value.powi(n - 1),
        };
        self.chain(self.value.powi(n), slope)
    }

    /// The hyperbolic tangent, as in a soft cap: `cap * (score / cap).tanh()`.
    #[must_use]
    pub fn tanh(self) -> Self {
        let tanh = self.value.tanh();
        self.chain(tanh, E::one() - tanh * tanh)
    }

    /// The logistic function, `1 / (1 + e^-x)`.
    #[must_use]
    pub fn sigmoid(self) -> Self {
        // The exponential of a negative number does not overflow.
        let exp = (-self.value.abs()).exp();
        let below = exp / (E::one() + exp);
        let sigmoid = match self.value < E::zero() {
            true => below,
            false => E::one() - below,
        };
        self.chain(sigmoid, sigmoid * (E::one() - sigmoid))
    }

    /// The sine.
    #[must_use]
    pub fn sin(self) -> Self {
        self.chain(self.value.sin(), self.value.cos())
    }

    /// The cosine.
    #[must_use]
    pub fn cos(self) -> Self {
        self.chain(self.value.cos(), -self.value.sin())
    }

    /// The magnitude. Its slope at 0 is 0.
    #[must_use]
    pub fn abs(self) -> Self {
        let slope = match self.value == E::zero() {
            true => E::zero(),
            false => self.value.signum(),
        };
        self.chain(self.value.abs(), slope)
    }

    /// The larger one. Of two equal numbers it is the first.
    #[must_use]
    pub fn max(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        if other.value > self.value {
            other
        } else {
            self
        }
    }

    /// The smaller one. Of two equal numbers it is the first.
    #[must_use]
    pub fn min(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        if other.value < self.value {
            other
        } else {
            self
        }
    }
}

impl<E: Element> From<E> for Dual<E> {
    fn from(value: E) -> Self {
        Self::constant(value)
    }
}

impl<E: Element> Neg for Dual<E> {
    type Output = Self;

    fn neg(self) -> Self {
        self.chain(-self.value, -E::one())
    }
}

/// The operators, of two dual numbers and of one and a number.
macro_rules! operators {
    ($($Operator:ident $name:ident ($x:ident, $y:ident) $value:expr, $slope:expr;)*) => {$(
        impl<E: Element> $Operator for Dual<E> {
            type Output = Self;

            fn $name(self, $y: Self) -> Self {
                let $x = self;
                Self { value: $value, slope: $slope }
            }
        }

        impl<E: Element> $Operator<E> for Dual<E> {
            type Output = Self;

            fn $name(self, other: E) -> Self {
                $Operator::$name(self, Self::constant(other))
            }
        }

        operators!(@of f32 $Operator $name);
        operators!(@of f64 $Operator $name);
    )*};
    (@of $E:ident $Operator:ident $name:ident) => {
        impl $Operator<Dual<$E>> for $E {
            type Output = Dual<$E>;

            fn $name(self, other: Dual<$E>) -> Dual<$E> {
                $Operator::$name(Dual::constant(self), other)
            }
        }
    };
}

operators! {
    Add add (x, y) x.value + y.value, x.slope + y.slope;
    Sub sub (x, y) x.value - y.value, x.slope - y.slope;
    Mul mul (x, y) x.value * y.value, x.slope * y.value + x.value * y.slope;
    Div div (x, y) x.value / y.value, (x.slope - x.value / y.value * y.slope) / y.value;
}

/// The place of a score: which query of which head meets which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The sequence.
    pub b: i64,
    /// The query head.
    pub h: i64,
    /// The query.
    pub q_idx: i64,
    /// The key.
    pub kv_idx: i64,
}

impl Pair {
    /// The pair of `at.q` and the key that is `keys` after `at.k`.
    pub(super) fn at(at: TileOrigin, keys: usize) -> Self {
        let [b, h, q_idx, kv_idx] = at.indices();
        Self {
            b,
            h,
            q_idx,
            kv_idx: kv_idx + keys as i64,
        }
    }
}

/// A function of a score for the kernels.
pub(super) struct Function<F>(pub F);

impl<E: Element, F: Fn(Dual<E>, Pair) -> Dual<E> + Send + Sync> PairFunction<E> for Function<F> {
    fn apply(&self, at: TileOrigin, scores: &mut [E]) {
        for (key, score) in scores.iter_mut().enumerate() {
            *score = self.0(Dual::variable(*score), Pair::at(at, key)).value;
        }
    }

    fn differentiate(&self, at: TileOrigin, scores: &[E], d: &mut [E]) {
        for (key, (score, d)) in scores.iter().zip(d).enumerate() {
            // The slope at a masked score may be anything.
            if *d != E::zero() {
                *d *= self.0(Dual::variable(*score), Pair::at(at, key)).slope;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions, and a point where each is smooth.
    #[test]
    fn slopes_agree_with_central_differences() {
        type Of = fn(Dual<f64>) -> Dual<f64>;
        let functions: [(&str, Of, f64); 22] = [
            ("x + 3", |x| x + 3.0, 0.7),
            ("3 + x", |x| 3.0 + x, 0.7),
            ("x - 3", |x| x - 3.0, 0.7),
            ("3 - x", |x| 3.0 - x, 0.7),
            ("3 x", |x| 3.0 * x, 0.7),
            ("x x", |x| x * x, 0.7),
            ("x / 3", |x| x / 3.0, 0.7),
            ("3 / x", |x| 3.0 / x, 0.7),
            ("x / (x + 1)", |x| x / (x + 1.0), 0.7),
            ("-x", |x| -x, 0.7),
            ("exp", Dual::exp, 0.7),
            ("ln", Dual::ln, 0.7),
            ("sqrt", Dual::sqrt, 0.7),
            ("x^3", |x| x.powi(3), -0.7),
            ("x^0", |x| x.powi(0), 0.0),
            ("tanh", Dual::tanh, 0.7),
            ("sigmoid", Dual::sigmoid, -0.7),
            ("sin", Dual::sin, 0.7),
            ("cos", Dual::cos, 0.7),
            ("abs", Dual::abs, -0.7),
            ("max", |x| x.max(0.5) * 2.0, 0.7),
            ("min", |x| x.min(0.5) + x, 0.7),
        ];
        for (name, f, at) in functions {
            let step = 1e-6;
            let of = |x: f64| f(Dual::variable(x)).value();
            let expected = (of(at + step) - of(at - step)) / (2.0 * step);
            let found = f(Dual::variable(at)).slope();
            // The square of the step, and rounding over the step.
            assert!(
                (found - expected).abs() < 1e-9,
                "{name}: {found} {expected}"
            );
        }
    }

    #[test]
    fn the_logistic_function_of_large_numbers_is_finite() {
        let found = [-800.0, 800.0].map(|x| Dual::<f64>::variable(x).sigmoid());
        assert_eq!(found.map(Dual::value), [0.0, 1.0]);
        assert_eq!(found.map(Dual::slope), [0.0, 0.0]);
    }
}
