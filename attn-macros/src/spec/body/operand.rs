//! Values during type inference.

use std::fmt;

use crate::score::{Expr, Type, Var};
use crate::spec::Size;

/// A value, and the knowledge about its type.
#[derive(Clone)]
pub(super) struct Operand {
    pub(super) expr: Expr,
    pub(super) kind: OperandKind,
}

/// The knowledge about the type of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum OperandKind {
    Is(Type),
    /// An expression of the user's constants only: an integer, unless a float is required. Until then the constants are integers.
    Constant,
    /// A value with a mistake, which has been reported: it fits every type.
    Mistake,
}

impl Operand {
    pub(super) fn new(expr: Expr, ty: Type) -> Self {
        Operand {
            expr,
            kind: OperandKind::Is(ty),
        }
    }

    pub(super) fn mistake() -> Self {
        Operand {
            expr: Expr::SCORE,
            kind: OperandKind::Mistake,
        }
    }

    pub(super) fn constant(constant: Size) -> Self {
        Operand {
            expr: Expr::Int(constant),
            kind: OperandKind::Constant,
        }
    }

    /// The placeholder for a value of this type that has a mistake.
    pub(super) fn unknown(ty: Type) -> Self {
        Operand::new(unknown(ty), ty)
    }

    /// A constant alone, without operators.
    pub(super) fn is_single_constant(&self) -> bool {
        self.kind == OperandKind::Constant && matches!(self.expr, Expr::Int(_))
    }
}

/// The placeholder for an expression whose value is not checked further.
pub(super) fn unknown(ty: Type) -> Expr {
    let index = Expr::from(Var::QIdx);
    match ty {
        Type::Float => Expr::SCORE,
        Type::Int => index,
        Type::Bool => index.equals(Var::KvIdx),
    }
}

impl OperandKind {
    /// The common type of both, or `None` if there is none.
    pub(super) fn common(self, other: OperandKind) -> Option<OperandKind> {
        match (self, other) {
            (OperandKind::Mistake, kind) | (kind, OperandKind::Mistake) => Some(kind),
            (OperandKind::Constant, OperandKind::Is(Type::Bool))
            | (OperandKind::Is(Type::Bool), OperandKind::Constant) => None,
            (OperandKind::Constant, kind) | (kind, OperandKind::Constant) => Some(kind),
            (a, b) => (a == b).then_some(a),
        }
    }

    pub(crate) fn is_number(self) -> bool {
        self != OperandKind::Is(Type::Bool)
    }
}

impl fmt::Display for OperandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OperandKind::Is(Type::Int) => "an integer",
            OperandKind::Is(Type::Float) => "a float",
            OperandKind::Is(Type::Bool) => "a condition",
            OperandKind::Constant => "a constant",
            OperandKind::Mistake => "a mistake",
        })
    }
}
