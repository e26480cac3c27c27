//! Expressions with parts of them replaced.

use crate::score::{Binary, Expr, Unary, Var};

/// `expr` with parts replaced by `f`. Constant conditions are folded.
pub(super) fn rewrite(expr: &Expr, f: &dyn Fn(&Expr) -> Option<Expr>) -> Expr {
    if let Some(replaced) = f(expr) {
        return replaced;
    }
    let part = |part: &Expr| rewrite(part, f);
    let parts = |parts: &[Expr]| parts.iter().map(part).collect();
    match expr {
        Expr::Operand(_) | Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) => {
            expr.clone()
        }
        Expr::Param { name, index } => Expr::Param {
            name: name.clone(),
            index: parts(index),
        },
        Expr::Data { data, index } => Expr::Data {
            data: data.clone(),
            index: parts(index),
        },
        Expr::Unary(Unary::Not, a) => not(part(a)),
        Expr::Unary(op, a) => part(a).unary(*op),
        Expr::Binary(Binary::And, a, b) => and(part(a), part(b)),
        Expr::Binary(Binary::Or, a, b) => or(part(a), part(b)),
        Expr::Binary(op, a, b) => part(a).binary(*op, part(b)),
        Expr::Select(condition, then, otherwise) => match part(condition) {
            Expr::Bool(true) => part(then),
            Expr::Bool(false) => part(otherwise),
            condition => condition.select(part(then), part(otherwise)),
        },
    }
}

/// `a && b`. As in Rust, the left operand alone decides if it can, since the other may have no value.
pub(super) fn and(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(true), other) | (other, Expr::Bool(true)) => other,
        (Expr::Bool(false), _) => Expr::Bool(false),
        (a, b) => a & b,
    }
}

/// `a || b`
pub(super) fn or(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Bool(false), other) | (other, Expr::Bool(false)) => other,
        (Expr::Bool(true), _) => Expr::Bool(true),
        (a, b) => a | b,
    }
}

pub(super) fn not(a: Expr) -> Expr {
    match a {
        Expr::Bool(value) => Expr::Bool(!value),
        Expr::Unary(Unary::Not, a) => *a,
        a => !a,
    }
}

/// `expr` with an expression in place of `var`.
pub(super) fn with_var(expr: &Expr, var: Var, value: &Expr) -> Expr {
    rewrite(expr, &|part| {
        matches!(part, Expr::Var(found) if *found == var).then(|| value.clone())
    })
}
