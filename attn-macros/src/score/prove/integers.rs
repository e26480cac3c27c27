//! Satisfiability of linear constraints over integers: the Omega test (Pugh, "The Omega test", 1991).
//!
//! Variables are eliminated one by one, as in Fourier-Motzkin elimination over the rationals: every lower bound is compared with
//! every upper one. Over the integers this is exact if one of the two has the coefficient 1. Otherwise the comparison leaves a
//! *shadow* that is too large. A stricter comparison leaves one that is too small. Between the two, the variable is close to one
//! of its lower bounds, which leaves a few equations to try.

use std::collections::BTreeMap;

use super::linear::{Linear, Model, Variable};
use crate::score::budget::Budget;

/// The maximum depth of nested eliminations. Common masks have a few dozen variables. A deeper recursion, as for equations that
/// grow, would overflow the stack of the compiler.
const DEEPEST: usize = 250;

/// It takes too many steps, or too large numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct GaveUp;

/// Decides constraints. A step is a term of one of them.
pub(super) struct Integers<'b> {
    budget: &'b Budget,
    depth: usize,
}

/// Constraints without duplicates: from each sum of terms to its negated lower bound.
type System = BTreeMap<BTreeMap<Variable, i128>, i128>;

impl<'b> Integers<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Integers { budget, depth: 0 }
    }

    pub(super) fn budget(&self) -> &'b Budget {
        self.budget
    }

    /// Integers for which every constraint is at least 0, if there are any.
    pub(super) fn solve(&mut self, constraints: Vec<Linear>) -> Result<Option<Model>, GaveUp> {
        if !self.budget.take(terms_of(&constraints)) || self.depth == DEEPEST {
            return Err(GaveUp);
        }
        self.depth += 1;
        let found = self.reduce(constraints);
        self.depth -= 1;
        found
    }

    /// [`solve`](Self::solve), with one variable fewer.
    fn reduce(&mut self, constraints: Vec<Linear>) -> Result<Option<Model>, GaveUp> {
        let Some(system) = system(constraints)? else {
            return Ok(None);
        };
        if let Some(equation) = equation(&system) {
            return self.solve_equation(&equation, constraints_of(system));
        }
        let constraints = constraints_of(system);
        match choose(&constraints) {
            None => Ok(Some(Model::new())),
            Some(variable) => self.eliminate(&Bounds::of(variable, constraints)),
        }
    }

    /// Substitutes a variable by an equation. If its coefficient is not 1, the equation is rewritten with smaller coefficients
    /// first: `a x + b y = a (x + (b / a) y) + (b % a) y`.
    fn solve_equation(
        &mut self,
        equation: &Linear,
        constraints: Vec<Linear>,
    ) -> Result<Option<Model>, GaveUp> {
        let Some((variable, factor)) = equation.terms().min_by_key(|(_, factor)| factor.abs())
        else {
            return Ok(None);
        };
        let value = if factor.abs() == 1 {
            equation.without(variable).times(-factor)
        } else {
            let others = equation.terms().filter(|(other, _)| *other != variable);
            others.fold(
                Linear::variable(variable),
                |value, (other, other_factor)| {
                    value.plus(-other_factor.div_euclid(factor), &Linear::variable(other))
                },
            )
        };
        let rest = constraints
            .iter()
            .map(|constraint| constraint.substitute(variable, &value));
        self.extend(self.limited(rest.collect())?, variable, |model| {
            value.at(model)
        })
    }

    /// Extends a model by the value of `variable`.
    fn extend(
        &mut self,
        constraints: Vec<Linear>,
        variable: Variable,
        value: impl Fn(&Model) -> Option<i128>,
    ) -> Result<Option<Model>, GaveUp> {
        let Some(mut model) = self.solve(constraints)? else {
            return Ok(None);
        };
        let value = value(&model).ok_or(GaveUp)?;
        model.insert(variable, value);
        Ok(Some(model))
    }

    fn eliminate(&mut self, bounds: &Bounds) -> Result<Option<Model>, GaveUp> {
        let value = |model: &Model| bounds.value(model);
        if !self.budget.take(bounds.terms_of_shadow()) {
            return Err(GaveUp);
        }
        let shadow = bounds.shadow(|_, _| 0);
        if bounds.is_exact() {
            return self.extend(shadow, bounds.variable, value);
        }
        if self.solve(shadow)?.is_none() {
            return Ok(None);
        }
        let dark = bounds.shadow(|lower, upper| (lower - 1) * (upper - 1));
        if let Some(model) = self.extend(dark, bounds.variable, value)? {
            return Ok(Some(model));
        }
        for constraints in bounds.splinters() {
            if let Some(model) = self.solve(constraints)? {
                return Ok(Some(model));
            }
        }
        Ok(None)
    }

    fn limited(&self, constraints: Vec<Linear>) -> Result<Vec<Linear>, GaveUp> {
        let fits = constraints.iter().all(Linear::is_small);
        if fits { Ok(constraints) } else { Err(GaveUp) }
    }
}

fn terms_of(constraints: &[Linear]) -> usize {
    let terms = constraints.iter().map(|sum| 1 + sum.terms().count());
    terms.sum()
}

/// The tightest constraint for each sum of terms. `None` if two of them, or a single one, are unsatisfiable.
fn system(constraints: Vec<Linear>) -> Result<Option<System>, GaveUp> {
    let mut system = System::new();
    for constraint in constraints {
        let constraint = constraint.tightened();
        if !constraint.is_small() {
            return Err(GaveUp);
        }
        let (terms, constant) = constraint.into_parts();
        if terms.is_empty() {
            if constant < 0 {
                return Ok(None);
            }
            continue;
        }
        let least = system.entry(terms).or_insert(constant);
        *least = constant.min(*least);
    }
    let contradictory =
        |(terms, constant)| opposite(&system, terms).is_some_and(|other| constant + other < 0);
    Ok((!system.iter().any(contradictory)).then_some(system))
}

/// The constant of the constraint with these terms negated.
fn opposite(system: &System, terms: &BTreeMap<Variable, i128>) -> Option<i128> {
    let negated = terms.iter().map(|(variable, factor)| (*variable, -factor));
    system.get(&negated.collect::<BTreeMap<_, _>>()).copied()
}

/// A sum that must be 0, as it is at least 0 and at most 0.
fn equation(system: &System) -> Option<Linear> {
    let found = system.iter().find(|(terms, constant)| {
        opposite(system, terms).is_some_and(|other| **constant + other == 0)
    });
    found.map(|(terms, constant)| Linear::of(terms.clone(), *constant))
}

fn constraints_of(system: System) -> Vec<Linear> {
    let constraints = system.into_iter();
    constraints
        .map(|(terms, constant)| Linear::of(terms, constant))
        .collect()
}

/// The variable with the cheapest elimination: an exact one that leaves few constraints. Of equal ones the last, so that the
/// first variables get the smallest values.
fn choose(constraints: &[Linear]) -> Option<Variable> {
    // Whether a lower and an upper bound have a coefficient other than 1, and the numbers of both.
    let mut costs = BTreeMap::<Variable, ([bool; 2], [usize; 2])>::new();
    for (variable, factor) in constraints.iter().flat_map(Linear::terms) {
        let (scaled, counts) = costs.entry(variable).or_default();
        let side = usize::from(factor < 0);
        scaled[side] |= factor.abs() > 1;
        counts[side] += 1;
    }
    let cost = |(scaled, counts): ([bool; 2], [usize; 2])| {
        let exact = scaled != [true; 2];
        (!exact, counts[0] * counts[1])
    };
    let costs = costs.into_iter().rev();
    costs
        .min_by_key(|(_, counted)| cost(*counted))
        .map(|(variable, _)| variable)
}

/// The bounds of one variable in a system.
struct Bounds {
    variable: Variable,
    /// `a`, `l`: that `a * variable + l` is at least 0; `a` is positive.
    lower: Vec<(i128, Linear)>,
    /// `b`, `u`: that `u - b * variable` is at least 0; `b` is positive.
    upper: Vec<(i128, Linear)>,
    /// The constraints on other variables.
    rest: Vec<Linear>,
}

impl Bounds {
    fn of(variable: Variable, constraints: Vec<Linear>) -> Self {
        let mut lower = Vec::new();
        let mut upper = Vec::new();
        let mut rest = Vec::new();
        for constraint in constraints {
            match constraint.coefficient(variable) {
                0 => rest.push(constraint),
                factor if factor > 0 => lower.push((factor, constraint.without(variable))),
                factor => upper.push((-factor, constraint.without(variable))),
            }
        }
        Bounds {
            variable,
            lower,
            upper,
            rest,
        }
    }

    fn is_exact(&self) -> bool {
        let is_plain = |bounds: &[(i128, Linear)]| bounds.iter().all(|(factor, _)| *factor == 1);
        is_plain(&self.lower) || is_plain(&self.upper)
    }

    /// The approximate number of terms in a [`shadow`](Self::shadow).
    fn terms_of_shadow(&self) -> usize {
        let terms = |bounds: &[(i128, Linear)]| {
            let terms = bounds.iter().map(|(_, sum)| 1 + sum.terms().count());
            terms.sum::<usize>()
        };
        let of_lower = terms(&self.lower).saturating_mul(self.upper.len());
        of_lower.saturating_add(terms(&self.upper).saturating_mul(self.lower.len()))
    }

    /// Every lower bound against every upper one, with a distance between the two.
    fn shadow(&self, distance: impl Fn(i128, i128) -> i128) -> Vec<Linear> {
        let mut shadow = self.rest.clone();
        for (a, lower) in &self.lower {
            for (b, upper) in &self.upper {
                let gap = lower.times(*b).plus(*a, upper);
                shadow.push(gap.shifted(-distance(*a, *b)));
            }
        }
        shadow
    }

    /// The least value within the bounds, or the greatest if there is no least one, where the other variables are as in
    /// `model`.
    fn value(&self, model: &Model) -> Option<i128> {
        let lower = self
            .lower
            .iter()
            .map(|(a, lower)| Some(-lower.at(model)?.div_euclid(*a)));
        let upper = self
            .upper
            .iter()
            .map(|(b, upper)| Some(upper.at(model)?.div_euclid(*b)));
        let (lower, upper): (Option<Vec<_>>, Option<Vec<_>>) = (lower.collect(), upper.collect());
        let least = lower?.into_iter().max();
        Some(least.or(upper?.into_iter().min()).unwrap_or(0))
    }

    /// Where the shadows disagree, the variable is close to one of its lower bounds: one system for each such value.
    fn splinters(&self) -> impl Iterator<Item = Vec<Linear>> {
        let steepest = self.upper.iter().map(|(b, _)| *b).max().unwrap_or(1);
        self.lower.iter().flat_map(move |(a, lower)| {
            let most = (a * steepest - a - steepest).div_euclid(steepest);
            (0..=most).map(move |above| {
                let equation = lower
                    .plus(*a, &Linear::variable(self.variable))
                    .shifted(-above);
                let mut system = self.all();
                system.extend([equation.times(-1), equation]);
                system
            })
        })
    }

    /// The whole system.
    fn all(&self) -> Vec<Linear> {
        let variable = Linear::variable(self.variable);
        let lower = self
            .lower
            .iter()
            .map(|(a, lower)| lower.plus(*a, &variable));
        let upper = self
            .upper
            .iter()
            .map(|(b, upper)| upper.plus(-b, &variable));
        lower
            .chain(upper)
            .chain(self.rest.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that are all the same.
    fn chain(length: Variable) -> Vec<Linear> {
        let links = (1..length).flat_map(|next| {
            let difference = Linear::variable(next).minus(&Linear::variable(next - 1));
            [difference.times(-1), difference]
        });
        links.collect()
    }

    #[test]
    fn what_goes_too_deep_is_given_up() {
        let solve = |length| Integers::new(&Budget::new(usize::MAX)).solve(chain(length));
        assert!(matches!(solve(100), Ok(Some(_))));
        assert!(matches!(solve(2 * DEEPEST), Err(GaveUp)));
    }
}
