//! Whether a derivative is 0 wherever there is one, also where no rule of [`diff`](super::diff) says so, as `1 / w - w / (w * w)`.
//!
//! What an expression computes is not touched by this: `w / w` is NaN at 0, and stays so. Here a float is a fraction of two
//! polynomials, of whatever stands in it that is no sum, product or quotient, and it is 0 if all of the upper one cancels.

use std::collections::BTreeMap;

use super::{Binary, Expr, Type};

/// As many products a polynomial may have; of a longer one nothing is said.
const MOST_PRODUCTS: usize = 100;

/// Whether `expr` is 0 wherever it is a number. `false` is always allowed.
pub(crate) fn vanishes(expr: &Expr) -> bool {
    Fraction::of(expr).is_some_and(|fraction| fraction.above.is_zero())
}

struct Fraction {
    above: Polynomial,
    below: Polynomial,
}

impl Fraction {
    /// `None` if it is too long, or divided by 0.
    fn of(expr: &Expr) -> Option<Self> {
        let whole = |above| {
            let below = Polynomial::number(1.0);
            Some(Fraction { above, below })
        };
        match expr {
            Expr::Float(real) => match real.value {
                Some(value) => whole(Polynomial::number(value)),
                None => whole(Polynomial::of(expr.to_string())),
            },
            Expr::Binary(Binary::Add, a, b) => Self::of(a)?.plus(&Self::of(b)?, 1.0),
            Expr::Binary(Binary::Sub, a, b) => Self::of(a)?.plus(&Self::of(b)?, -1.0),
            Expr::Binary(Binary::Mul, a, b) => Self::of(a)?.times(&Self::of(b)?),
            Expr::Binary(Binary::Div, a, b) => Self::of(a)?.times(&Self::of(b)?.inverse()?),
            Expr::Binary(Binary::Pow, a, b) => match power(b) {
                Some(power) => Self::of(a)?.to(power),
                None => whole(Polynomial::of(expr.to_string())),
            },
            // `c a + (1 - c) b`, where `c` is 1 or 0.
            Expr::Select(condition, a, b) if a.ty() == Type::Float => {
                let (a, b) = (Self::of(a)?, Self::of(b)?);
                let condition = whole(Polynomial::of(condition.to_string()))?;
                condition.times(&a.plus(&b, -1.0)?)?.plus(&b, 1.0)
            }
            other => whole(Polynomial::of(other.to_string())),
        }
    }

    /// `self + scale * other`
    fn plus(&self, other: &Self, scale: f64) -> Option<Self> {
        let (here, there) = (
            self.above.times(&other.below)?,
            other.above.times(&self.below)?,
        );
        Some(Fraction {
            above: here.plus(&there, scale)?,
            below: self.below.times(&other.below)?,
        })
    }

    fn times(&self, other: &Self) -> Option<Self> {
        Some(Fraction {
            above: self.above.times(&other.above)?,
            below: self.below.times(&other.below)?,
        })
    }

    fn inverse(self) -> Option<Self> {
        let Fraction { above, below } = self;
        let (above, below) = (below, above);
        (!below.is_zero()).then_some(Fraction { above, below })
    }

    fn to(self, power: u32) -> Option<Self> {
        let one = Fraction {
            above: Polynomial::number(1.0),
            below: Polynomial::number(1.0),
        };
        (0..power).try_fold(one, |product, _| product.times(&self))
    }
}

/// A small power.
fn power(exponent: &Expr) -> Option<u32> {
    let Expr::Float(real) = exponent else {
        return None;
    };
    (0..=4).find(|power| real.value == Some(f64::from(*power)))
}

/// Products of powers, and how often each is taken.
struct Polynomial(BTreeMap<BTreeMap<String, u32>, f64>);

impl Polynomial {
    fn number(value: f64) -> Self {
        let products = [(BTreeMap::new(), value)].into_iter();
        Polynomial(products.filter(|(_, value)| *value != 0.0).collect())
    }

    /// A part that is taken as it is.
    fn of(part: String) -> Self {
        Polynomial([([(part, 1)].into(), 1.0)].into())
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// `self + scale * other`
    fn plus(mut self, other: &Self, scale: f64) -> Option<Self> {
        for (product, times) in &other.0 {
            self.add(product.clone(), scale * times);
        }
        self.checked()
    }

    fn times(&self, other: &Self) -> Option<Self> {
        let mut products = Polynomial(BTreeMap::new());
        for (a, times) in &self.0 {
            for (b, more_times) in &other.0 {
                let mut product = a.clone();
                for (part, power) in b {
                    *product.entry(part.clone()).or_default() += power;
                }
                let times = times * more_times;
                if times == 0.0 {
                    return None;
                }
                products.add(product, times);
            }
        }
        products.checked()
    }

    fn add(&mut self, product: BTreeMap<String, u32>, times: f64) {
        let sum = self.0.get(&product).copied().unwrap_or(0.0) + times;
        if sum == 0.0 {
            self.0.remove(&product);
        } else {
            self.0.insert(product, sum);
        }
    }

    /// `None` if it is too long, or a number too large for a float.
    fn checked(self) -> Option<Self> {
        let is_short = self.0.len() <= MOST_PRODUCTS;
        (is_short && self.0.values().all(|times| times.is_finite())).then_some(self)
    }
}
