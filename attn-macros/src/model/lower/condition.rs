//! Choices between values by a condition, element by element.

use proc_macro2::{Ident, Span};

use super::operators::{Operand, named};
use super::{Lowering, RegionBuilder};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::group::join_last;
use crate::model::syntax::{self, Comparison, Condition};
use crate::score::Expr;

impl Lowering<'_> {
    /// `if condition { then } else { otherwise }`, of values with axes and of numbers.
    ///
    /// The elementwise operations of a branch become a part of the choice: where the branch is not taken, they add nothing to a gradient,
    /// even if their derivative is infinite there.
    pub(super) fn choice(
        &mut self,
        at: Span,
        condition: &Condition,
        [then, otherwise]: &[syntax::Expr; 2],
        name: Option<&Ident>,
        builder: &mut RegionBuilder,
    ) -> Option<Operand> {
        let start = builder.region.steps.len();
        let mut values = Vec::new();
        let condition = self.condition(condition, &mut values, builder);
        let then = self.part(then, &mut values, builder);
        let otherwise = self.part(otherwise, &mut values, builder);
        let expr = condition?.select(then?, otherwise?);
        // A condition of numbers alone was reported.
        let ty = self.common_of(&values, at, "if")?;
        let result = (&*named(name, "select"), ty);
        let result = self.elementwise(expr, &values, result, builder);
        join_last(&mut builder.region, start);
        Some(Operand::Tensor(result))
    }

    /// The expression of a condition. The values that it reads are added to the operands.
    fn condition(
        &mut self,
        condition: &Condition,
        values: &mut Vec<ValueId>,
        builder: &mut RegionBuilder,
    ) -> Option<Expr> {
        let mut both = |sides: &[Condition; 2]| {
            let [left, right] = sides.each_ref();
            let left = self.condition(left, values, builder);
            let right = self.condition(right, values, builder);
            Some((left?, right?))
        };
        Some(match condition {
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
                comparison,
                at,
                sides,
            } => {
                let count = values.len();
                let [left, right] = sides.as_ref();
                let left = self.part(left, values, builder);
                let right = self.part(right, values, builder);
                let (left, right) = (left?, right?);
                if values.len() == count {
                    self.error(*at, messages::COMPARISON_OF_NUMBERS);
                    return None;
                }
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
}
