//! Values during type inference.

use std::fmt;

use crate::score::{Expr, Type, Var};
use crate::spec::Size;

/// A value, and the knowledge about its type.
#[derive(Clone)]
pub(super) struct Operand {
    pub(super) expr: Expr,
    pub(super) kind: Kind,
}

/// The knowledge about the type of a value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
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
            kind: Kind::Is(ty),
        }
    }

    pub(super) fn mistake() -> Self {
        Operand {
            expr: Expr::SCORE,
            kind: Kind::Mistake,
        }
    }

    pub(super) fn constant(constant: Size) -> Self {
        Operand {
            expr: Expr::Int(constant),
            kind: Kind::Constant,
        }
    }

    /// The placeholder for a value of this type that has a mistake.
    pub(super) fn unknown(ty: Type) -> Self {
        Operand::new(unknown(ty), ty)
    }

    /// A constant alone, without operators.
    pub(super) fn is_single_constant(&self) -> bool {
        self.kind == Kind::Constant && matches!(self.expr, Expr::Int(_))
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

impl Kind {
    /// The common type of both, or `None` if there is none.
    pub(super) fn common(self, other: Kind) -> Option<Kind> {
        match (self, other) {
            (Kind::Mistake, kind) | (kind, Kind::Mistake) => Some(kind),
            (Kind::Constant, Kind::Is(Type::Bool)) | (Kind::Is(Type::Bool), Kind::Constant) => None,
            (Kind::Constant, kind) | (kind, Kind::Constant) => Some(kind),
            (a, b) => (a == b).then_some(a),
        }
    }

    pub(crate) fn is_number(self) -> bool {
        self != Kind::Is(Type::Bool)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Is(Type::Int) => "an integer",
            Kind::Is(Type::Float) => "a float",
            Kind::Is(Type::Bool) => "a condition",
            Kind::Constant => "a constant",
            Kind::Mistake => "a mistake",
        })
    }
}
