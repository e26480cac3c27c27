//! Sums of integer variables.

use std::collections::BTreeMap;

/// A variable, by number.
pub(super) type Variable = usize;

/// The values of the variables; those that are not in it are 0.
pub(super) type Model = BTreeMap<Variable, i128>;

/// Coefficients and constants are no larger than this, so that the sum of a few products of two of them fits an `i128`.
const LARGEST: i128 = 1 << 56;

/// `Σ coefficient * variable + constant`, over the integers. As a constraint: that it is at least 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Linear {
    /// Without zeros.
    terms: BTreeMap<Variable, i128>,
    constant: i128,
}

impl Linear {
    pub(super) fn constant(constant: i128) -> Self {
        Linear {
            terms: BTreeMap::new(),
            constant,
        }
    }

    pub(super) fn variable(variable: Variable) -> Self {
        Linear {
            terms: BTreeMap::from([(variable, 1)]),
            constant: 0,
        }
    }

    /// The sum of these terms and `constant`.
    pub(super) fn of(terms: BTreeMap<Variable, i128>, constant: i128) -> Self {
        Linear { terms, constant }
    }

    pub(super) fn into_parts(self) -> (BTreeMap<Variable, i128>, i128) {
        (self.terms, self.constant)
    }

    /// `self + factor * other`
    pub(super) fn plus(&self, factor: i128, other: &Linear) -> Linear {
        let mut sum = self.clone();
        sum.constant += factor * other.constant;
        for (variable, coefficient) in &other.terms {
            let entry = sum.terms.entry(*variable).or_default();
            *entry += factor * coefficient;
            if *entry == 0 {
                sum.terms.remove(variable);
            }
        }
        sum
    }

    /// `self - other`
    pub(super) fn minus(&self, other: &Linear) -> Linear {
        self.plus(-1, other)
    }

    /// `self + constant`
    pub(super) fn shifted(&self, constant: i128) -> Linear {
        self.plus(constant, &Linear::constant(1))
    }

    /// `factor * self`
    pub(super) fn times(&self, factor: i128) -> Linear {
        Linear::default().plus(factor, self)
    }

    pub(super) fn coefficient(&self, variable: Variable) -> i128 {
        self.terms.get(&variable).copied().unwrap_or(0)
    }

    pub(super) fn constant_term(&self) -> i128 {
        self.constant
    }

    pub(super) fn terms(&self) -> impl Iterator<Item = (Variable, i128)> {
        self.terms
            .iter()
            .map(|(variable, factor)| (*variable, *factor))
    }

    /// The value, if there are no variables in it.
    pub(super) fn known(&self) -> Option<i128> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The term without its variable, which is left out.
    pub(super) fn without(&self, variable: Variable) -> Linear {
        let mut rest = self.clone();
        rest.terms.remove(&variable);
        rest
    }

    /// With `value` in place of a variable.
    pub(super) fn substitute(&self, variable: Variable, value: &Linear) -> Linear {
        match self.coefficient(variable) {
            0 => self.clone(),
            factor => self.without(variable).plus(factor, value),
        }
    }

    /// The value in `model`; `None` if it is too large.
    pub(super) fn at(&self, model: &Model) -> Option<i128> {
        self.terms
            .iter()
            .try_fold(self.constant, |sum, (variable, factor)| {
                let value = model.get(variable).copied().unwrap_or(0);
                sum.checked_add(factor.checked_mul(value)?)
            })
    }

    /// The same constraint, as tight as integers allow: divided by the greatest common divisor of the coefficients, and
    /// rounded down.
    pub(super) fn tightened(self) -> Linear {
        let divisor = self.terms.values().fold(0, |a, b| gcd(a, *b));
        if divisor <= 1 {
            return self;
        }
        let terms = self
            .terms
            .into_iter()
            .map(|(variable, factor)| (variable, factor / divisor));
        Linear {
            terms: terms.collect(),
            constant: self.constant.div_euclid(divisor),
        }
    }

    /// Small enough to be combined with others.
    pub(super) fn is_small(&self) -> bool {
        let mut numbers = self.terms.values().chain([&self.constant]);
        numbers.all(|number| number.abs() <= LARGEST)
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
