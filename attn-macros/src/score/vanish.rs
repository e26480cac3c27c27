//! Whether a derivative is 0 wherever it exists, also where no rule of [`diff`](super::diff) shows it, as `1 / w - w / (w * w)`.
//!
//! This does not change the values of expressions: `w / w` stays NaN at 0. Here a float is a fraction of two polynomials, whose
//! variables are all parts that are no sum, product or quotient. It is 0 if its numerator cancels. Numbers are decimals of the
//! source, so they cancel up to rounding: `0.1 * w + 0.2 * w - 0.3 * w` is 0.

use std::collections::BTreeMap;

use super::budget::Budget;
use super::numbers::Numbers;
use super::{Binary, Expr, Type};
use crate::spec::Real;

/// The maximum number of products in a polynomial. A longer one is undecided.
const MAX_PRODUCTS: usize = 100;

/// The error of a sum of numbers, in units of the sum of their magnitudes: some dozens of roundings.
const ROUNDING: f64 = 64.0 * f64::EPSILON;

/// Whether `expr` is 0 wherever it is a number, up to the rounding of its numbers: `1e16 * w + w - 1e16 * w` is. `false` is
/// always correct, as when the budget is used up.
pub(crate) fn vanishes(expr: &Expr, budget: &Budget) -> bool {
    let numbers = Numbers::default();
    let fraction = Analysis { budget, numbers }.fraction(expr);
    fraction.is_some_and(|fraction| fraction.above.is_zero())
}

struct Analysis<'b, 'e> {
    budget: &'b Budget,
    /// Those of the parts that are taken as they are.
    numbers: Numbers<'e>,
}

impl<'e> Analysis<'_, 'e> {
    /// `None` if it is too long, or divided by 0.
    fn fraction(&mut self, expr: &'e Expr) -> Option<Fraction> {
        let budget = self.budget;
        if !budget.take(1) {
            return None;
        }
        match expr {
            Expr::Float(Real {
                value: Some(value), ..
            }) => Some(Fraction::whole(Polynomial::number(*value))),
            Expr::Binary(Binary::Add, a, b) => {
                let a = self.fraction(a)?;
                a.plus(&self.fraction(b)?, 1.0, budget)
            }
            Expr::Binary(Binary::Sub, a, b) => {
                let a = self.fraction(a)?;
                a.plus(&self.fraction(b)?, -1.0, budget)
            }
            Expr::Binary(Binary::Mul, a, b) => {
                let a = self.fraction(a)?;
                a.times(&self.fraction(b)?, budget)
            }
            Expr::Binary(Binary::Div, a, b) => {
                let a = self.fraction(a)?;
                a.times(&self.fraction(b)?.inverse()?, budget)
            }
            Expr::Binary(Binary::Pow, a, b) => match power(b) {
                Some(power) => self.fraction(a)?.to(power, budget),
                None => self.part(expr),
            },
            // `c a + (1 - c) b`, where `c` is 1 or 0.
            Expr::Select(condition, a, b) if a.ty() == Type::Float => {
                let a = self.fraction(a)?;
                let b = self.fraction(b)?;
                let condition = self.part(condition)?;
                let difference = a.plus(&b, -1.0, budget)?;
                condition.times(&difference, budget)?.plus(&b, 1.0, budget)
            }
            _ => self.part(expr),
        }
    }

    /// A part that is taken as it is.
    fn part(&mut self, expr: &'e Expr) -> Option<Fraction> {
        let is_short = self.budget.take(expr.size());
        is_short.then(|| Fraction::whole(Polynomial::of(self.numbers.of(expr))))
    }
}

struct Fraction {
    above: Polynomial,
    below: Polynomial,
}

impl Fraction {
    fn whole(above: Polynomial) -> Self {
        let below = Polynomial::number(1.0);
        Fraction { above, below }
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

/// The powers of parts, by the numbers of these.
type Product = BTreeMap<usize, u32>;

/// Products, and how often each is taken.
struct Polynomial(BTreeMap<Product, Sum>);

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

    /// The part of this number.
    fn of(part: usize) -> Self {
        Self::once([(part, 1)].into(), 1.0)
    }

    fn once(product: Product, value: f64) -> Self {
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
                    *product.entry(*part).or_default() += power;
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
    fn add(&mut self, product: Product, times: Sum, scale: f64) {
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
        let is_short = self.0.len() <= MAX_PRODUCTS;
        (is_short && self.0.values().all(|times| times.size.is_finite())).then_some(self)
    }
}
