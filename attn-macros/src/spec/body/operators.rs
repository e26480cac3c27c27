//! Operators: `+ - * / %`, comparisons, `&& ||`, and `-` and `!` before a value.

use quote::{ToTokens, quote};
use syn::{BinOp, ExprBinary, ExprUnary, UnOp};

use super::lower::Lower;
use super::operand::{Operand, OperandKind};
use crate::messages::body as messages;
use crate::score::eval::{self, Value};
use crate::score::{Binary, Expr, Type};
use crate::spec::Rules;

impl Lower<'_, '_> {
    pub(super) fn unary(&mut self, unary: &ExprUnary) -> Operand {
        if !matches!(unary.op, UnOp::Neg(_) | UnOp::Not(_)) {
            return self.error(unary.op, messages::unsupported("references", None));
        }
        let value = self.expr(&unary.expr);
        let expr = match (unary.op, value.kind) {
            (_, OperandKind::Mistake) => return value,
            (UnOp::Not(_), OperandKind::Is(Type::Bool)) => !value.expr,
            (UnOp::Not(_), kind) => {
                return self.error(unary.op, messages::not_a_condition(kind, &unary.expr));
            }
            (_, OperandKind::Is(Type::Bool)) => {
                return self.error(unary.op, messages::MINUS_OF_CONDITION);
            }
            (_, OperandKind::Is(Type::Float)) => Expr::float(-1.0) * value.expr,
            _ => Expr::from(0) - value.expr,
        };
        self.checked(expr, value.kind, unary)
    }

    pub(super) fn binary(&mut self, binary: &ExprBinary) -> Operand {
        if let (BinOp::Mul(star), syn::Expr::Unary(power)) = (&binary.op, &*binary.right)
            && let UnOp::Deref(second) = power.op
        {
            self.expr(&binary.left);
            self.expr(&power.expr);
            let stars = quote!(#star #second);
            return self.error(stars, messages::double_star(&binary.left, &power.expr));
        }
        match binary.op {
            BinOp::Add(_) => self.arithmetic(Binary::Add, binary),
            BinOp::Sub(_) => self.arithmetic(Binary::Sub, binary),
            BinOp::Mul(_) => self.arithmetic(Binary::Mul, binary),
            BinOp::Div(_) => self.arithmetic(Binary::Div, binary),
            BinOp::Rem(_) => self.arithmetic(Binary::Rem, binary),
            BinOp::And(_) => self.logic(Binary::And, binary),
            BinOp::Or(_) => self.logic(Binary::Or, binary),
            BinOp::Eq(_) | BinOp::Ne(_) => self.equality(binary),
            BinOp::Lt(_) => self.comparison(binary, |a, b| a.less(b)),
            BinOp::Le(_) => self.comparison(binary, |a, b| a.at_most(b)),
            BinOp::Gt(_) => self.comparison(binary, |a, b| b.less(a)),
            BinOp::Ge(_) => self.comparison(binary, |a, b| b.at_most(a)),
            op => {
                self.operands(binary);
                self.error(op, messages::unsupported_operator(&op))
            }
        }
    }

    fn operands(&mut self, binary: &ExprBinary) -> (Operand, Operand) {
        (self.expr(&binary.left), self.expr(&binary.right))
    }

    fn arithmetic(&mut self, op: Binary, binary: &ExprBinary) -> Operand {
        let (a, b) = self.operands(binary);
        let kinds = [a.kind, b.kind];
        if kinds.contains(&OperandKind::Mistake) {
            return Operand::mistake();
        }
        let Some(kind) = a.kind.common(b.kind).filter(|kind| kind.is_number()) else {
            return self.error(binary.op, messages::mixed(binary, kinds));
        };
        let a = self.settle(a, kind);
        let b = self.settle(b, kind);
        if matches!(op, Binary::Div | Binary::Rem)
            && kind != OperandKind::Constant
            && !self.may_divide(&b, &binary.right)
        {
            return Operand { expr: a, kind };
        }
        self.checked(a.binary(op, b), kind, binary)
    }

    /// Whether `divisor` is not 0, as far as that is known. A constant of the user is left to rustc. A divisor that depends on
    /// indices or data is left to the call.
    fn may_divide(&mut self, divisor: &Expr, at: &syn::Expr) -> bool {
        let condition = match divisor {
            Expr::Int(size) => quote!(#size != 0),
            Expr::Float(real) => quote!(#real != 0.0),
            divisor => {
                let is_zero = eval::first(divisor) == Some(Value::Int(0));
                if is_zero {
                    self.error(at, messages::division_by_zero_at_first(at));
                }
                return !is_zero;
            }
        };
        let holds =
            eval::value(divisor).map(|value| value != Value::Int(0) && value != Value::Float(0.0));
        let at = at.to_token_stream();
        let message = || messages::division_by_zero(&at);
        self.checker.require(&at, holds, condition, message)
    }

    fn comparison(&mut self, binary: &ExprBinary, compare: fn(Expr, Expr) -> Expr) -> Operand {
        let (a, b) = self.operands(binary);
        let kinds = [a.kind, b.kind];
        match a.kind.common(b.kind).filter(|kind| kind.is_number()) {
            Some(kind) => {
                let (a, b) = self.comparable(a, b, kind);
                self.checked(compare(a, b), OperandKind::Is(Type::Bool), binary)
            }
            None => {
                self.error(binary.op, messages::mixed(binary, kinds));
                Operand::unknown(Type::Bool)
            }
        }
    }

    /// `==` and `!=`, of conditions as well.
    fn equality(&mut self, binary: &ExprBinary) -> Operand {
        let (a, b) = self.operands(binary);
        let Some(kind) = a.kind.common(b.kind) else {
            self.error(binary.op, messages::mixed(binary, [a.kind, b.kind]));
            return Operand::unknown(Type::Bool);
        };
        let (a, b) = self.comparable(a, b, kind);
        let equal = match kind {
            OperandKind::Is(Type::Bool) => {
                let equal = a.select(b.clone(), !b);
                if !self.is_short(&equal, binary) {
                    return Operand::unknown(Type::Bool);
                }
                equal
            }
            _ => a.equals(b),
        };
        let expr = match binary.op {
            BinOp::Ne(_) => !equal,
            _ => equal,
        };
        self.checked(expr, OperandKind::Is(Type::Bool), binary)
    }

    /// Both as a `kind`; constants alone are integers.
    fn comparable(&mut self, a: Operand, b: Operand, kind: OperandKind) -> (Expr, Expr) {
        let kind = match kind {
            OperandKind::Constant => OperandKind::Is(Type::Int),
            kind => kind,
        };
        (self.settle(a, kind), self.settle(b, kind))
    }

    fn logic(&mut self, op: Binary, binary: &ExprBinary) -> Operand {
        let (a, b) = self.operands(binary);
        let condition = OperandKind::Is(Type::Bool);
        let kinds = [a.kind, b.kind];
        if kinds.iter().any(|kind| kind.common(condition).is_none()) {
            self.error(binary.op, messages::mixed(binary, kinds));
            return Operand::unknown(Type::Bool);
        }
        let a = self.settle(a, condition);
        let b = self.settle(b, condition);
        self.checked(a.binary(op, b), condition, binary)
    }
}
