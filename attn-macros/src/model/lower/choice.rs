//! Choices by a condition: between values, element by element, and of constants, while compiling.

use proc_macro2::{Ident, Span, TokenStream};

use super::operators::{Operand, named};
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::condition::{is_choice_of_key, parse_choice_of_key};
use crate::model::graph::{ModuleId, ValueId};
use crate::model::group::join_last;
use crate::model::sizes::ConstValue;
use crate::model::syntax::{self, Comparison, Condition};
use crate::model::types::ValueKind;
use crate::ops::Float;
use crate::score::Expr;
use crate::spec::{Real, Size, without_parentheses};

impl Lowering<'_> {
    /// `if condition { then } else { otherwise }`, of values with axes and of numbers.
    ///
    /// The elementwise operations of a branch become a part of the choice: where the branch is not taken, they add nothing to a gradient,
    /// even if their derivative is infinite there.
    pub(super) fn choice(
        &mut self,
        at: Span,
        condition: &Condition,
        branches: &[syntax::Expr; 2],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let [then, otherwise] = branches;
        if self.holds(condition).is_some() || self.is_constant_condition(condition) {
            let Some(holds) = self.decided(at, condition) else {
                branches.iter().for_each(|branch| self.skip_value(branch));
                return None;
            };
            self.skip_value(&branches[usize::from(holds)]);
            return self.operand(&branches[usize::from(!holds)], name, builder);
        }
        let start = builder.region.steps.len();
        let mut values = Vec::new();
        let condition = self.condition(condition, &mut values, builder);
        let then = self.part(then, &mut values, builder);
        let otherwise = self.part(otherwise, &mut values, builder);
        let expr = condition?.select(then?, otherwise?);
        // One of the values at least is in the condition.
        let ty = self.common_of(&values, at, "if")?;
        let result = (&*named(name, "select"), ty);
        let result = self.elementwise(expr, &values, result, builder);
        join_last(&mut builder.region, start);
        Some(Operand::Tensor(result))
    }

    /// The expression of a condition that is not known. The values that it reads are added to the operands.
    fn condition(
        &mut self,
        condition: &Condition,
        values: &mut Vec<ValueId>,
        builder: &mut RegionBuilder,
    ) -> Option<Expr> {
        if let Condition::And(sides) | Condition::Or(sides) = condition
            && let Some(known) = sides.iter().position(|side| self.holds(side).is_some())
        {
            // It decides nothing, or else the whole would be known.
            self.skip_condition(&sides[known]);
            return self.condition(&sides[1 - known], values, builder);
        }
        let mut both = |sides: &[Condition; 2]| {
            let [left, right] = sides.each_ref();
            let left = self.condition(left, values, builder);
            let right = self.condition(right, values, builder);
            Some((left?, right?))
        };
        Some(match condition {
            Condition::Switch(name) => self.mark(name, values, builder)?,
            Condition::And(sides) => {
                let (left, right) = both(sides)?;
                left & right
            }
            Condition::Or(sides) => {
                let (left, right) = both(sides)?;
                left | right
            }
            Condition::Not(inner) => !self.condition(inner, values, builder)?,
            Condition::Compare {
                comparison, sides, ..
            } => {
                let [left, right] = sides.as_ref();
                let left = self.compared(left, values, builder);
                let right = self.compared(right, values, builder);
                let (left, right) = (left?, right?);
                match comparison {
                    Comparison::Less => left.less(right),
                    Comparison::AtMost => left.at_most(right),
                    Comparison::Greater => right.less(left),
                    Comparison::AtLeast => right.at_most(left),
                    Comparison::Equal => left.equals(right),
                    Comparison::NotEqual => !left.equals(right),
                }
            }
        })
    }

    /// A mask by its name: `if keep { .. }`
    fn mark(
        &mut self,
        name: &Ident,
        values: &mut Vec<ValueId>,
        builder: &mut RegionBuilder,
    ) -> Option<Expr> {
        let variable = self.scopes.read(name).map(|variable| variable.value);
        let is_marks = |value: &ValueId| self.ty(*value).kind == ValueKind::Bools;
        let marks = match variable {
            Some(value) => Some(value?).filter(is_marks),
            None => None,
        };
        if marks.is_none() {
            self.no_switch(name);
        }
        let marks = self.seen(name, marks?)?;
        let marks = Float::node(self, builder, marks, "float");
        values.push(marks);
        Some(!Expr::Operand(values.len() - 1).equals(Expr::Float(Real::known(0.0))))
    }

    /// A side of a comparison: a part of an expression, or ids, lengths or marks, as floats.
    fn compared(
        &mut self,
        expr: &syntax::Expr,
        values: &mut Vec<ValueId>,
        builder: &mut RegionBuilder,
    ) -> Option<Expr> {
        let side = self.part(expr, values, builder)?;
        if let (Expr::Operand(_), Some(last)) = (&side, values.last_mut())
            && self.ty(*last).kind != ValueKind::Floats
        {
            *last = Float::node(self, builder, *last, "float");
        }
        Some(side)
    }

    /// A value or a number as a part of an expression.
    fn part(
        &mut self,
        expr: &syntax::Expr,
        values: &mut Vec<ValueId>,
        builder: &mut RegionBuilder,
    ) -> Option<Expr> {
        Some(match self.operand(expr, None, builder)? {
            Operand::Number(number) => Expr::Float(number),
            Operand::Tensor(value) => {
                values.push(value);
                Expr::Operand(values.len() - 1)
            }
        })
    }

    /// Whether nothing in it has axes.
    fn is_constant_condition(&self, condition: &Condition) -> bool {
        let is_variable = |name: &Ident| self.scopes.find(name).is_some();
        condition.sides().all(|side| self.is_number(side)) && !condition.switches().any(is_variable)
    }

    /// Whether a condition holds, if the constants that are known decide that.
    pub(super) fn holds(&self, condition: &Condition) -> Option<bool> {
        Some(match condition {
            Condition::Switch(name) if self.scopes.find(name).is_some() => return None,
            Condition::Switch(name) => match self.sizes.get(name)? {
                ConstValue::Switch(value) => value,
                _ => return None,
            },
            Condition::Not(inner) => !self.holds(inner)?,
            Condition::And(sides) => match sides.each_ref().map(|side| self.holds(side)) {
                [Some(false), _] | [_, Some(false)] => false,
                [left, right] => left? && right?,
            },
            Condition::Or(sides) => match sides.each_ref().map(|side| self.holds(side)) {
                [Some(true), _] | [_, Some(true)] => true,
                [left, right] => left? || right?,
            },
            Condition::Compare {
                comparison, sides, ..
            } => {
                let is_number = |side: &syntax::Expr| self.is_number(side);
                let number = |side| is_number(side).then(|| self.known_number(side)).flatten();
                let [left, right] = sides.each_ref().map(number);
                comparison.holds(left?, right?)
            }
        })
    }

    /// The same, where the code depends on it: what is not known is reported.
    pub(super) fn decided(&mut self, at: Span, condition: &Condition) -> Option<bool> {
        if let Some(holds) = self.holds(condition) {
            self.skip_condition(condition);
            return Some(holds);
        }
        let before = self.cx.count();
        let has_axes = |side: &&syntax::Expr| !self.is_number(side);
        if let Some(side) = condition.sides().find(has_axes) {
            self.error(side.span(), messages::STATEMENTS_BY_VALUES);
        }
        for name in condition.switches() {
            match self.scopes.read(name) {
                Some(_) => self.cx.error(name, messages::STATEMENTS_BY_VALUES),
                None => self.no_switch(name),
            }
        }
        let mut nowhere = RegionBuilder::new(ModuleId(0));
        for side in condition.sides() {
            if self.is_number(side) {
                self.operand(side, None, &mut nowhere);
            } else {
                self.skip_value(side);
            }
        }
        let is_reported = condition
            .switches()
            .any(|name| self.sizes.is_reported(name));
        if self.cx.count() == before && !is_reported {
            self.error(at, messages::unknown_condition(&self.item.name));
        }
        None
    }

    /// The value of a key. Of a choice by constants it is that of the branch that is taken. `None` after a mistake.
    pub(super) fn value_of_key(&mut self, value: &TokenStream) -> Option<TokenStream> {
        let inner = without_parentheses(value);
        if !is_choice_of_key(&inner) {
            return Some(value.clone());
        }
        let choice = parse_choice_of_key(&inner, self.cx)?;
        let Some(holds) = self.decided(choice.at, &choice.condition) else {
            let mut branches = choice.branches.iter();
            branches.by_ref().for_each(|branch| self.sizes.skip(branch));
            return None;
        };
        let [then, otherwise] = &choice.branches;
        let (taken, other) = match holds {
            true => (then, otherwise),
            false => (otherwise, then),
        };
        self.sizes.skip(other);
        self.value_of_key(taken)
    }

    /// Reports a name in the place of a condition that is none.
    pub(super) fn no_switch(&mut self, name: &Ident) {
        if self.scopes.read(name).is_some() {
            self.cx.error(name, messages::value_as_condition(name));
            return;
        }
        match self.sizes.get(name) {
            Some(ConstValue::Switch(_)) => {}
            Some(ConstValue::Size(size)) if size.value.is_none() => {
                self.constant_as_switch(name, &size);
            }
            Some(value) => self
                .cx
                .error(name, messages::number_as_condition(name, &value)),
            None if self.sizes.has(name) => {}
            None => self
                .cx
                .error(name, messages::unknown_switch(name, &self.item.name)),
        }
    }

    /// Reports a constant that only rustc knows in the place of a switch, once, where its value is.
    fn constant_as_switch(&mut self, name: &Ident, size: &Size) {
        if !self.sizes.is_first_misuse(name) {
            return;
        }
        let message = messages::constant_as_switch(name, size);
        match size.origin.is_empty() {
            true => self.cx.error(name, message),
            false => self.cx.error(&size.origin, message),
        }
        self.constants.give_up(size);
    }

    /// A condition that is decided reads its constants.
    pub(super) fn skip_condition(&mut self, condition: &Condition) {
        condition.switches().for_each(|name| {
            self.scopes.read(name);
            self.sizes.get(name);
        });
        condition.sides().for_each(|side| self.skip_value(side));
    }

    /// The names in a value that is not computed count as read.
    pub(super) fn skip_value(&mut self, value: &syntax::Expr) {
        for part in value.parts() {
            part.constants()
                .into_iter()
                .for_each(|tokens| self.sizes.skip(tokens));
            match part {
                syntax::Expr::Name(name) => {
                    self.scopes.read(name);
                    self.sizes.get(name);
                }
                syntax::Expr::If { condition, .. } => condition.switches().for_each(|name| {
                    self.sizes.get(name);
                }),
                syntax::Expr::Call(call) => self.skip_call(call),
                _ => {}
            }
        }
    }
}
