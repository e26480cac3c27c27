//! The translation of expressions into [`Formula`]s over integers.
//!
//! A condition that the formulas cannot express, such as one on floats, is taken to hold: an unsatisfiable formula without it is
//! unsatisfiable with it. The same is done for a condition beyond the budget. An integer beyond the budget may have any value.

use super::formula::Formula;
use super::linear::{Linear, Model, Variable};
use super::rewrite::rewrite;
use crate::score::budget::Budget;
use crate::score::{Binary, Expr, Type, Unary, Var};
use crate::spec::Size;

/// The meaning of a variable of the formulas.
#[derive(Clone, PartialEq, Debug)]
enum Symbol {
    Var(Var),
    /// A size that is rustc's to evaluate.
    Size(Size),
    /// The quotient of a sum by a number or another sum, rounded towards zero.
    Quotient(Linear, Linear),
    Product(Linear, Linear),
    /// Any other expression of integers: equal ones are one integer.
    Other(Expr),
    /// Any integer, each one for itself.
    Any,
}

/// One of the values that an expression has, and when.
struct Case {
    when: Formula,
    value: Linear,
}

impl Case {
    fn always(value: Linear) -> Vec<Case> {
        vec![Case {
            when: Formula::Constant(true),
            value,
        }]
    }
}

/// The maximum number of cases. An integer with more cases gets a variable: a sum has the product of the cases of its terms.
const MAX_CASES: usize = 16;

/// The variables of some formulas.
pub(super) struct Symbols<'b> {
    symbols: Vec<Symbol>,
    /// The facts about variables that stand for integers of many cases.
    definitions: Vec<Formula>,
    /// There are as many queries as keys.
    same_lengths: bool,
    budget: &'b Budget,
}

impl<'b> Symbols<'b> {
    pub(super) fn new(same_lengths: bool, budget: &'b Budget) -> Self {
        // The first ones get the smallest values.
        let vars = [Var::QLen, Var::KvLen, Var::B, Var::H, Var::QIdx, Var::KvIdx];
        Symbols {
            symbols: vars.map(Symbol::Var).to_vec(),
            definitions: Vec::new(),
            same_lengths,
            budget,
        }
    }

    pub(super) fn var(&mut self, var: Var) -> Linear {
        let same = self.same_lengths && var == Var::KvLen;
        self.linear(Symbol::Var(if same { Var::QLen } else { var }))
    }

    pub(super) fn size(&mut self, size: &Size) -> Linear {
        match size.value {
            Some(value) => Linear::constant(value.into()),
            None => self.linear(Symbol::Size(size.clone())),
        }
    }

    /// The value of `var` in a model.
    pub(super) fn value(&mut self, var: Var, model: &Model) -> Option<i64> {
        i64::try_from(self.var(var).at(model)?).ok()
    }

    /// Facts about the variables that hold for every question.
    pub(super) fn definitions(&self) -> Formula {
        Formula::all(self.definitions.iter().cloned())
    }

    /// The expressions that are obviously never negative.
    pub(super) fn naturals(&self) -> Vec<Linear> {
        let all = self.symbols.iter().enumerate();
        let naturals = all.filter(|(_, symbol)| self.is_natural_symbol(symbol));
        naturals
            .map(|(variable, _)| Linear::variable(variable))
            .collect()
    }

    /// `expr` with the values of a model in place of the sizes that are rustc's to evaluate.
    pub(super) fn with_sizes(&self, expr: &Expr, model: &Model) -> Expr {
        let is = |variable: &Variable, size: &Size| matches!(&self.symbols[*variable], Symbol::Size(other) if other == size);
        rewrite(expr, &|part| match part {
            Expr::Int(size) if size.value.is_none() => {
                let variable = (0..self.symbols.len()).find(|variable| is(variable, size))?;
                let value = model.get(&variable).copied().unwrap_or(0);
                u64::try_from(value).ok().map(Expr::from)
            }
            _ => None,
        })
    }

    fn variable(&mut self, symbol: Symbol) -> Variable {
        let found = self.symbols.iter().position(|other| *other == symbol);
        found.unwrap_or_else(|| self.new_variable(symbol))
    }

    fn new_variable(&mut self, symbol: Symbol) -> Variable {
        self.symbols.push(symbol);
        self.symbols.len() - 1
    }

    fn any(&mut self) -> Linear {
        Linear::variable(self.new_variable(Symbol::Any))
    }

    fn linear(&mut self, symbol: Symbol) -> Linear {
        Linear::variable(self.variable(symbol))
    }

    /// The formula for `condition == holds`.
    pub(super) fn truth(&mut self, condition: &Expr, holds: bool) -> Formula {
        if !self.budget.take(1) {
            return Formula::Constant(true);
        }
        match condition {
            Expr::Bool(value) => Formula::Constant(*value == holds),
            Expr::Unary(Unary::Not, a) => self.truth(a, !holds),
            Expr::Binary(op @ (Binary::And | Binary::Or), a, b) => {
                let parts = [self.truth(a, holds), self.truth(b, holds)];
                if (*op == Binary::And) == holds {
                    Formula::all(parts)
                } else {
                    Formula::any(parts)
                }
            }
            Expr::Binary(op, a, b) if a.ty() == Type::Int && b.ty() == Type::Int => {
                self.comparison(*op, a, b, holds)
            }
            Expr::Select(condition, then, otherwise) => {
                let then = [self.truth(condition, true), self.truth(then, holds)];
                let otherwise = [self.truth(condition, false), self.truth(otherwise, holds)];
                Formula::any([Formula::all(then), Formula::all(otherwise)])
            }
            _ => Formula::Constant(true),
        }
    }

    fn comparison(&mut self, op: Binary, a: &Expr, b: &Expr, holds: bool) -> Formula {
        let cases = self.both(a, b, |_, a, b| Case::always(a.minus(b)));
        let zero = Linear::default();
        let compare = |difference: &Linear| match (op, holds) {
            (Binary::Eq, true) => Formula::equals(difference, &zero),
            (Binary::Eq, false) => Formula::differs(difference, &zero),
            (Binary::Lt, true) => Formula::less(difference, &zero),
            (Binary::Lt, false) => Formula::at_most(&zero, difference),
            (Binary::Le, true) => Formula::at_most(difference, &zero),
            (Binary::Le, false) => Formula::less(&zero, difference),
            _ => Formula::Constant(true),
        };
        let parts = cases.into_iter().map(|case| {
            let compared = compare(&case.value);
            Formula::all([case.when, compared])
        });
        Formula::any(parts)
    }

    /// The cases of an expression of integers. One of them always holds.
    fn integer(&mut self, expr: &Expr) -> Vec<Case> {
        let cases = self.cases(expr);
        let terms = cases.iter().map(|case| 1 + case.value.terms().count());
        if !self.budget.take(terms.sum()) {
            return Case::always(self.any());
        }
        if cases.len() <= MAX_CASES {
            return cases;
        }
        let value = self.any();
        let definition = cases.into_iter().map(|case| {
            let equal = Formula::equals(&value, &case.value);
            Formula::all([case.when, equal])
        });
        self.definitions.push(Formula::any(definition));
        Case::always(value)
    }

    fn cases(&mut self, expr: &Expr) -> Vec<Case> {
        if self.budget.is_spent() {
            return Case::always(self.any());
        }
        match expr {
            Expr::Var(var) => Case::always(self.var(*var)),
            Expr::Int(size) => {
                let size = self.size(size);
                if size.is_small() {
                    Case::always(size)
                } else {
                    self.other(expr)
                }
            }
            Expr::Unary(Unary::Abs, a) => {
                self.each(a, |_, a| cases_of_sign(a, a.clone(), a.times(-1)))
            }
            Expr::Binary(op, a, b) if *op != Binary::Pow => self.arithmetic(*op, a, b),
            Expr::Select(condition, then, otherwise) => {
                let when = [self.truth(condition, true), self.truth(condition, false)];
                let values = [then, otherwise].map(|value| self.integer(value));
                let cases = when.into_iter().zip(values);
                cases
                    .flat_map(|(when, values)| guarded(&when, values))
                    .collect()
            }
            other => self.other(other),
        }
    }

    fn arithmetic(&mut self, op: Binary, a: &Expr, b: &Expr) -> Vec<Case> {
        self.both(a, b, |symbols, a, b| match op {
            Binary::Add => Case::always(a.plus(1, b)),
            Binary::Sub => Case::always(a.minus(b)),
            Binary::Mul => Case::always(symbols.product(a, b)),
            Binary::Div => symbols.quotient(a, b),
            Binary::Rem => symbols.remainder(a, b),
            Binary::Min => cases_of_sign(&a.minus(b), b.clone(), a.clone()),
            _ => cases_of_sign(&a.minus(b), a.clone(), b.clone()),
        })
    }

    fn product(&mut self, a: &Linear, b: &Linear) -> Linear {
        let product = match (a.known(), b.known()) {
            (Some(factor), _) => b.times(factor),
            (_, Some(factor)) => a.times(factor),
            _ => self.linear(Symbol::Product(a.clone(), b.clone())),
        };
        if product.is_small() {
            return product;
        }
        self.linear(Symbol::Product(a.clone(), b.clone()))
    }

    /// `a / b`, rounded towards zero.
    fn quotient(&mut self, a: &Linear, b: &Linear) -> Vec<Case> {
        if a.known() == Some(0) {
            return Case::always(a.clone());
        }
        match b.known() {
            Some(divisor) if divisor != 0 => self.quotient_by_number(a, divisor),
            _ => Case::always(self.linear(Symbol::Quotient(a.clone(), b.clone()))),
        }
    }

    fn quotient_by_number(&mut self, a: &Linear, divisor: i128) -> Vec<Case> {
        if let Some(value) = a.known() {
            return Case::always(Linear::constant(value / divisor));
        }
        let size = Linear::constant(divisor.abs());
        let quotient = self.linear(Symbol::Quotient(a.clone(), size));
        // 0 <= rest < |divisor| if `a` is not negative, and the negation of that otherwise.
        let rest = a.plus(-divisor.abs(), &quotient);
        let zero = Linear::default();
        let is_rest = |rest: &Linear| {
            let size = Linear::constant(divisor.abs());
            [Formula::at_most(&zero, rest), Formula::less(rest, &size)]
        };
        let value = quotient.times(divisor.signum());
        let mut cases = vec![Case {
            when: Formula::all(
                is_rest(&rest)
                    .into_iter()
                    .chain([Formula::at_most(&zero, a)]),
            ),
            value: value.clone(),
        }];
        if !self.is_natural(a) {
            let negated = is_rest(&rest.times(-1));
            cases.push(Case {
                when: Formula::all(negated.into_iter().chain([Formula::less(a, &zero)])),
                value,
            });
        }
        cases
    }

    fn remainder(&mut self, a: &Linear, b: &Linear) -> Vec<Case> {
        let quotients = self.quotient(a, b);
        let cases = quotients.into_iter().map(|case| Case {
            value: a.minus(&self.product(b, &case.value)),
            ..case
        });
        cases.collect()
    }

    /// Whether a sum is obviously never negative.
    fn is_natural(&self, sum: &Linear) -> bool {
        let natural = |(variable, factor): (Variable, i128)| {
            factor > 0 && self.is_natural_symbol(&self.symbols[variable])
        };
        sum.constant_term() >= 0 && sum.terms().all(natural)
    }

    fn is_natural_symbol(&self, symbol: &Symbol) -> bool {
        match symbol {
            Symbol::Var(_) | Symbol::Size(_) => true,
            Symbol::Quotient(a, b) | Symbol::Product(a, b) => {
                self.is_natural(a) && self.is_natural(b)
            }
            Symbol::Other(_) | Symbol::Any => false,
        }
    }

    fn other(&mut self, expr: &Expr) -> Vec<Case> {
        Case::always(self.linear(Symbol::Other(expr.clone())))
    }

    fn each(&mut self, a: &Expr, f: impl Fn(&mut Self, &Linear) -> Vec<Case>) -> Vec<Case> {
        let cases = self.integer(a);
        cases
            .into_iter()
            .flat_map(|case| guarded(&case.when, f(self, &case.value)))
            .collect()
    }

    fn both(
        &mut self,
        a: &Expr,
        b: &Expr,
        f: impl Fn(&mut Self, &Linear, &Linear) -> Vec<Case>,
    ) -> Vec<Case> {
        let b = self.integer(b);
        self.each(a, |symbols, a| {
            let cases = b
                .iter()
                .flat_map(|b| guarded(&b.when, f(symbols, a, &b.value)));
            cases.collect()
        })
    }
}

/// `cases`, where `when` holds.
fn guarded(when: &Formula, cases: Vec<Case>) -> Vec<Case> {
    let both = |case: Case| Case {
        when: Formula::all([when.clone(), case.when]),
        value: case.value,
    };
    cases.into_iter().map(both).collect()
}

/// One value where `a` is at least 0, another where it is less.
fn cases_of_sign(a: &Linear, natural: Linear, negative: Linear) -> Vec<Case> {
    let zero = Linear::default();
    let cases = [
        (Formula::at_most(&zero, a), natural),
        (Formula::less(a, &zero), negative),
    ];
    let cases = cases.into_iter().map(|(when, value)| Case { when, value });
    cases
        .filter(|case| !matches!(case.when, Formula::Constant(false)))
        .collect()
}
