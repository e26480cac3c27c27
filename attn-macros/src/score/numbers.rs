//! Equal expressions by number, where many are compared.

use std::collections::BTreeMap;

use super::{Binary, Expr, Unary};

/// The numbers of the expressions so far. An operation is known by its kind and the numbers of its operands, so that no expression
/// is compared as a whole.
#[derive(Default)]
pub(super) struct Numbers<'e>(BTreeMap<(ExprKey<'e>, Vec<usize>), usize>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ExprKey<'e> {
    Unary(Unary),
    Binary(Binary),
    Select,
    /// A leaf, which is no operation. An index stays with its tensor.
    Leaf(&'e Expr),
}

impl<'e> Numbers<'e> {
    /// The number that equal expressions have in common.
    pub(super) fn of(&mut self, expr: &'e Expr) -> usize {
        let operands = operands(expr).into_iter();
        let operands = operands.map(|operand| self.of(operand)).collect();
        self.of_operation(expr, operands)
    }

    /// The same, for the numbers of the operands.
    pub(super) fn of_operation(&mut self, expr: &'e Expr, operands: Vec<usize>) -> usize {
        let kind = match expr {
            Expr::Unary(op, _) => ExprKey::Unary(*op),
            Expr::Binary(op, ..) => ExprKey::Binary(*op),
            Expr::Select(..) => ExprKey::Select,
            leaf => ExprKey::Leaf(leaf),
        };
        let next = self.0.len();
        *self.0.entry((kind, operands)).or_insert(next)
    }
}

/// The parts of an operation.
pub(super) fn operands(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Param { .. } | Expr::Data { .. } => Vec::new(),
        other => other.children(),
    }
}
