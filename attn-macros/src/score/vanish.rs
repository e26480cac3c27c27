//! Whether a derivative is 0 wherever it exists, also where no rule of [`diff`](super::diff) shows it, as `1 / w - w / (w * w)`.
//!
//! This does not change the values of expressions: `w / w` stays NaN at 0. Here a float is a fraction of two polynomials, whose
//! variables are all parts that are no sum, product or quotient. It is 0 if its numerator cancels. Numbers are decimals of the
//! source, so they cancel up to rounding: `0.1 * w + 0.2 * w - 0.3 * w` is 0.

use std::collections::BTreeMap;

use super::budget::Budget;
use super::{Binary, Expr, Type};

/// The maximum number of products in a polynomial. A longer one is undecided.
const MOST_PRODUCTS: usize = 100;

/// The error of a sum of numbers, in units of the sum of their magnitudes: some dozens of roundings.
const ROUNDING: f64 = 64.0 * f64::EPSILON;

/// Whether `expr` is 0 wherever it is a number, up to the rounding of its numbers: `1e16 * w + w - 1e16 * w` is. `false` is
/// always correct, as when the budget is used up.
pub(crate) fn vanishes(expr: &Expr, budget: &Budget) -> bool {
    Fraction::of(expr, budget).is_some_and(|fraction| fraction.above.is_zero())
}

struct Fraction {
    above: Polynomial,
    below: Polynomial,
}

impl Fraction {
    /// `None` if it is too long, or divided by 0.
    fn of(expr: &Expr, budget: &Budget) -> Option<Self> {
        let of = |part: &Expr| Self::of(part, budget);
        let text = || {
            let is_short = budget.take(expr.size());
            is_short.then(|| expr.to_string())
        };
        if !budget.take(1) {
            return None;
        }
        let whole = |above| {
            let below = Polynomial::number(1.0);
            Some(Fraction { above, below })
        };
        match expr {
            Expr::Float(real) => match real.value {
                Some(value) => whole(Polynomial::number(value)),
                None => whole(Polynomial::of(text()?)),
            },
            Expr::Binary(Binary::Add, a, b) => of(a)?.plus(&of(b)?, 1.0, budget),
            Expr::Binary(Binary::Sub, a, b) => of(a)?.plus(&of(b)?, -1.0, budget),
            Expr::Binary(Binary::Mul, a, b) => of(a)?.times(&of(b)?, budget),
            Expr::Binary(Binary::Div, a, b) => of(a)?.times(&of(b)?.inverse()?, budget),
            Expr::Binary(Binary::Pow, a, b) => match power(b) {
                Some(power) => of(a)?.to(power, budget),
                None => whole(Polynomial::of(text()?)),
            },
            // `c a + (1 - c) b`, where `c` is 1 or 0.
            Expr::Select(condition, a, b) if a.ty() == Type::Float => {
                let a = of(a)?;
                let b = of(b)?;
                if !budget.take(condition.size()) {
                    return None;
                }
                let condition = whole(Polynomial::of(condition.to_string()))?;
                let difference = a.plus(&b, -1.0, budget)?;
                condition.times(&difference, budget)?.plus(&b, 1.0, budget)
            }
            _ => whole(Polynomial::of(text()?)),
        }
    }

    /// `self + scale * other`
    fn plus(&self, other: &Self, scale: f64, budget: &Budget) -> Option<Self> {
        let here = self.above.times(&other.below, budget)?;
        let there = other.above.times(&self.below, budget)?;
        Some(Fraction {
            above: here.plus(&there, scale)?,
            below: self.below.times(&other.below, budget)?,
        })
    }

    fn times(&self, other: &Self, budget: &Budget) -> Option<Self> {
        Some(Fraction {
            above: self.above.times(&other.above, budget)?,
            below: self.below.times(&other.below, budget)?,
        })
    }

    fn inverse(self) -> Option<Self> {
        let Fraction { above, below } = self;
        let (above, below) = (below, above);
        (!below.is_zero()).then_some(Fraction { above, below })
    }

    fn to(self, power: u32, budget: &Budget) -> Option<Self> {
        let one = Fraction {
            above: Polynomial::number(1.0),
            below: Polynomial::number(1.0),
        };
        (0..power).try_fold(one, |product, _| product.times(&self, budget))
    }
}

/// A small power.
fn power(exponent: &Expr) -> Option<u32> {
    let Expr::Float(real) = exponent else {
        return None;
    };
    (0..=4).find(|power| real.value == Some(f64::from(*power)))
}

/// From products of powers to their coefficients.
struct Polynomial(BTreeMap<BTreeMap<String, u32>, Sum>);

/// A sum of numbers, and of their magnitudes.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    size: f64,
}

impl Sum {
    fn is_zero(self) -> bool {
        self.value.abs() <= ROUNDING * self.size
    }

    fn plus(self, other: Self, scale: f64) -> Self {
        Sum {
            value: self.value + scale * other.value,
            size: self.size + scale.abs() * other.size,
        }
    }

    fn times(self, other: Self) -> Self {
        Sum {
            value: self.value * other.value,
            size: self.size * other.size,
        }
    }
}

impl Polynomial {
    fn number(value: f64) -> Self {
        Self::once(BTreeMap::new(), value)
    }

    /// A variable.
    fn of(part: String) -> Self {
        Self::once([(part, 1)].into(), 1.0)
    }

    fn once(product: BTreeMap<String, u32>, value: f64) -> Self {
        let size = value.abs();
        let mut polynomial = Polynomial(BTreeMap::new());
        polynomial.add(product, Sum { value, size }, 1.0);
        polynomial
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// `self + scale * other`
    fn plus(mut self, other: &Self, scale: f64) -> Option<Self> {
        for (product, times) in &other.0 {
            self.add(product.clone(), *times, scale);
        }
        self.checked()
    }

    fn times(&self, other: &Self, budget: &Budget) -> Option<Self> {
        let mut products = Polynomial(BTreeMap::new());
        for (a, times) in &self.0 {
            for (b, more_times) in &other.0 {
                if !budget.take(1 + a.len() + b.len()) {
                    return None;
                }
                let mut product = a.clone();
                for (part, power) in b {
                    *product.entry(part.clone()).or_default() += power;
                }
                let times = times.times(*more_times);
                if times.value == 0.0 {
                    return None;
                }
                products.add(product, times, 1.0);
            }
        }
        products.checked()
    }

    /// Adds `scale * times` of `product`.
    fn add(&mut self, product: BTreeMap<String, u32>, times: Sum, scale: f64) {
        let sum = self.0.get(&product).copied().unwrap_or_default();
        let sum = sum.plus(times, scale);
        if sum.is_zero() {
            self.0.remove(&product);
        } else {
            self.0.insert(product, sum);
        }
    }

    /// `None` if it is too long, or a number too large for a float.
    fn checked(self) -> Option<Self> {
        let is_short = self.0.len() <= MOST_PRODUCTS;
        (is_short && self.0.values().all(|times| times.size.is_finite())).then_some(self)
    }
}
