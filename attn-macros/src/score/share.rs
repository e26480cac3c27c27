//! Common subexpressions of an expression, as variables.

use std::collections::BTreeMap;

use super::numbers::{Numbers, operands};
use super::{Expr, Name, Type};

/// The parts of expressions that stand in them more than once, and the rest of each. A part reads those before it, and a rest
/// all of them, as parameters named [`part_name`].
pub(crate) struct Shared {
    pub(crate) parts: Vec<Expr>,
    pub(crate) rests: Vec<Expr>,
}

/// The name under which a part is read.
pub(crate) fn part_name(index: usize) -> Name {
    format!("{PART}{index}").into()
}

/// Whether it is the name of a part.
pub(crate) fn is_part(name: &str) -> bool {
    name.starts_with(PART)
}

const PART: &str = "part_";

impl Shared {
    pub(crate) fn of<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Self {
        let mut numbers = Numbers::default();
        let exprs = exprs
            .into_iter()
            .map(|expr| Numbered::of(expr, &mut numbers));
        let exprs: Vec<_> = exprs.collect();
        let mut sharing = Sharing::default();
        exprs.iter().for_each(|expr| sharing.count(expr));
        let rests = exprs.iter().map(|expr| sharing.take(expr)).collect();
        Self {
            parts: sharing.parts,
            rests,
        }
    }
}

/// A part of an expression, with a number that is the same for equal parts.
struct Numbered<'e> {
    expr: &'e Expr,
    number: usize,
    /// It changes with the score or with what is learned.
    changes: bool,
    operands: Vec<Numbered<'e>>,
}

impl<'e> Numbered<'e> {
    fn of(expr: &'e Expr, numbers: &mut Numbers<'e>) -> Self {
        let operands = operands(expr).into_iter();
        let operands: Vec<_> = operands.map(|operand| Self::of(operand, numbers)).collect();
        let of_operands = operands.iter().map(|operand| operand.number).collect();
        Numbered {
            expr,
            number: numbers.of_operation(expr, of_operands),
            changes: matches!(expr, Expr::Operand(_) | Expr::Param { .. })
                || operands.iter().any(|operand| operand.changes),
            operands,
        }
    }

    /// A float that changes, and takes an operation.
    fn is_worth_it(&self) -> bool {
        self.changes && !self.operands.is_empty() && self.expr.ty() == Type::Float
    }
}

#[derive(Default)]
struct Sharing {
    /// The number of reads of each part, if a repeated part is computed once.
    reads: BTreeMap<usize, usize>,
    /// The names of the parts that have one.
    names: BTreeMap<usize, Name>,
    parts: Vec<Expr>,
}

impl Sharing {
    fn count(&mut self, part: &Numbered<'_>) {
        if part.is_worth_it() {
            let reads = self.reads.entry(part.number).or_default();
            *reads += 1;
            if *reads > 1 {
                return;
            }
        }
        part.operands.iter().for_each(|operand| self.count(operand));
    }

    fn take(&mut self, part: &Numbered<'_>) -> Expr {
        if let Some(name) = self.names.get(&part.number) {
            return read(name.clone());
        }
        let mut take = |operand: usize| Box::new(self.take(&part.operands[operand]));
        let taken = match part.expr {
            Expr::Unary(op, _) => Expr::Unary(*op, take(0)),
            Expr::Binary(op, ..) => Expr::Binary(*op, take(0), take(1)),
            Expr::Select(..) => Expr::Select(take(0), take(1), take(2)),
            leaf => leaf.clone(),
        };
        if self.reads.get(&part.number).is_none_or(|reads| *reads < 2) {
            return taken;
        }
        let name = part_name(self.parts.len());
        self.parts.push(taken);
        self.names.insert(part.number, name.clone());
        read(name)
    }
}

fn read(name: Name) -> Expr {
    let index = Vec::new();
    Expr::Param { name, index }
}
