//! Formulas over integers, and their satisfiability.

use super::integers::{GaveUp, Integers};
use super::linear::{Linear, Model};

/// A condition without negations.
#[derive(Clone, Debug)]
pub(super) enum Formula {
    Constant(bool),
    AtLeastZero(Linear),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

impl Formula {
    /// `a <= b`
    pub(super) fn at_most(a: &Linear, b: &Linear) -> Formula {
        let difference = b.minus(a);
        match difference.known() {
            Some(value) => Formula::Constant(value >= 0),
            None => Formula::AtLeastZero(difference),
        }
    }

    /// `a < b`
    pub(super) fn less(a: &Linear, b: &Linear) -> Formula {
        Formula::at_most(&a.shifted(1), b)
    }

    /// `a == b`
    pub(super) fn equals(a: &Linear, b: &Linear) -> Formula {
        Formula::all([Formula::at_most(a, b), Formula::at_most(b, a)])
    }

    /// `a != b`
    pub(super) fn differs(a: &Linear, b: &Linear) -> Formula {
        Formula::any([Formula::less(a, b), Formula::less(b, a)])
    }

    pub(super) fn all(parts: impl IntoIterator<Item = Formula>) -> Formula {
        let mut all = Vec::new();
        for part in parts {
            match part {
                Formula::Constant(true) => {}
                Formula::Constant(false) => return part,
                Formula::All(parts) => all.extend(parts),
                other => all.push(other),
            }
        }
        match all.len() {
            0 => Formula::Constant(true),
            1 => all.remove(0),
            _ => Formula::All(all),
        }
    }

    pub(super) fn any(parts: impl IntoIterator<Item = Formula>) -> Formula {
        let mut any = Vec::new();
        for part in parts {
            match part {
                Formula::Constant(false) => {}
                Formula::Constant(true) => return part,
                Formula::Any(parts) => any.extend(parts),
                other => any.push(other),
            }
        }
        match any.len() {
            0 => Formula::Constant(false),
            1 => any.remove(0),
            _ => Formula::Any(any),
        }
    }

    fn holds(&self, model: &Model) -> bool {
        match self {
            Formula::Constant(value) => *value,
            Formula::AtLeastZero(sum) => sum.at(model).is_some_and(|value| value >= 0),
            Formula::All(parts) => parts.iter().all(|part| part.holds(model)),
            Formula::Any(parts) => parts.iter().any(|part| part.holds(model)),
        }
    }
}

/// Integers that meet `formula`, if there are any.
pub(super) fn solve(formula: &Formula, integers: &mut Integers) -> Result<Option<Model>, GaveUp> {
    solve_assumed(Assumed::default().and(formula), integers)
}

/// Assumptions: constraints, and disjunctions that are not decided yet.
#[derive(Clone, Default)]
struct Assumed<'f> {
    constraints: Vec<Linear>,
    choices: Vec<&'f [Formula]>,
}

impl<'f> Assumed<'f> {
    fn and(mut self, formula: &'f Formula) -> Self {
        self.assume(formula);
        self
    }

    fn assume(&mut self, formula: &'f Formula) {
        match formula {
            Formula::Constant(true) => {}
            Formula::Constant(false) => self.choices.push(&[]),
            Formula::AtLeastZero(sum) => self.constraints.push(sum.clone()),
            Formula::All(parts) => parts.iter().for_each(|part| self.assume(part)),
            Formula::Any(parts) => self.choices.push(parts),
        }
    }
}

/// Integers that satisfy the constraints often satisfy the disjunctions as well. If not, each part of the smallest unsatisfied
/// disjunction is tried.
fn solve_assumed(
    mut assumed: Assumed<'_>,
    integers: &mut Integers,
) -> Result<Option<Model>, GaveUp> {
    let Some(model) = integers.solve(assumed.constraints.clone())? else {
        return Ok(None);
    };
    if !integers.budget().take(assumed.choices.len()) {
        return Err(GaveUp);
    }
    let fails = |(_, parts): &(usize, &&[Formula])| !parts.iter().any(|part| part.holds(&model));
    let choices = assumed.choices.iter().enumerate();
    let Some((choice, _)) = choices.filter(fails).min_by_key(|(_, parts)| parts.len()) else {
        return Ok(Some(model));
    };
    for part in assumed.choices.swap_remove(choice) {
        if let Some(model) = solve_assumed(assumed.clone().and(part), integers)? {
            return Ok(Some(model));
        }
    }
    Ok(None)
}
