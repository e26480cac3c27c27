//! Arithmetic on the literals of a constant expression.

use syn::{BinOp, Expr, Lit, UnOp};

use super::not_constant;

/// The value of a constant expression, as far as the macro knows it.
pub(super) enum Known<T> {
    Value(T),
    /// Only rustc can evaluate it.
    Later,
    /// It is certainly not of the wanted kind.
    Wrong,
}

impl<T> Known<T> {
    fn from_option(value: Option<T>) -> Self {
        value.map_or(Known::Wrong, Known::Value)
    }
}

/// Why arithmetic of whole numbers is no size.
#[derive(Clone, Copy)]
pub(crate) enum NoSize {
    /// It does not fit into 64 bits.
    TooLarge,
    DivisionByZero,
}

/// Integer arithmetic on literals.
pub(super) fn eval_int(expr: &Expr) -> Known<i128> {
    match inner(expr) {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => Known::from_option(int.base10_parse().ok()),
            _ => Known::Wrong,
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => match eval_int(&unary.expr) {
            Known::Value(value) => Known::from_option(value.checked_neg()),
            other => other,
        },
        Expr::Binary(binary) => match (eval_int(&binary.left), eval_int(&binary.right)) {
            (Known::Value(a), Known::Value(b)) => Known::from_option(int_op(&binary.op, a, b)),
            (Known::Wrong, _) | (_, Known::Wrong) => Known::Wrong,
            _ => Known::Later,
        },
        other => later(other),
    }
}

fn int_op(op: &BinOp, a: i128, b: i128) -> Option<i128> {
    // Those of a negative number are not those of a size.
    let has_bits = a >= 0 && b >= 0;
    match op {
        BinOp::Add(_) => a.checked_add(b),
        BinOp::Sub(_) => a.checked_sub(b),
        BinOp::Mul(_) => a.checked_mul(b),
        BinOp::Div(_) => a.checked_div(b),
        BinOp::Rem(_) => a.checked_rem(b),
        BinOp::Shl(_) => u32::try_from(b)
            .ok()
            .filter(|&b| b < 64)
            .and_then(|b| a.checked_mul(1 << b)),
        BinOp::Shr(_) => u32::try_from(b)
            .ok()
            .filter(|&b| b < 64)
            .and_then(|b| a.checked_shr(b)),
        BinOp::BitAnd(_) if has_bits => Some(a & b),
        BinOp::BitOr(_) if has_bits => Some(a | b),
        BinOp::BitXor(_) if has_bits => Some(a ^ b),
        _ => None,
    }
}

/// Why `expr`, which is no size, is none, where it is made of whole numbers.
pub(crate) fn mistake(expr: &Expr) -> Option<NoSize> {
    match inner(expr) {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int
                .base10_parse::<u64>()
                .is_err()
                .then_some(NoSize::TooLarge),
            _ => None,
        },
        Expr::Binary(binary) => {
            let [left, right] = [&binary.left, &binary.right];
            let of_sides = mistake(left).or_else(|| mistake(right));
            of_sides.or_else(|| match (eval_int(left), eval_int(right)) {
                (Known::Value(a), Known::Value(b)) => mistake_of_op(&binary.op, a, b),
                _ => None,
            })
        }
        _ => None,
    }
}

fn mistake_of_op(op: &BinOp, a: i128, b: i128) -> Option<NoSize> {
    let fits = |value: Option<i128>| value.is_some_and(|value| u64::try_from(value).is_ok());
    match op {
        BinOp::Div(_) | BinOp::Rem(_) if b == 0 => Some(NoSize::DivisionByZero),
        BinOp::Add(_) | BinOp::Mul(_) | BinOp::Shl(_) if a > 0 && b > 0 => {
            (!fits(int_op(op, a, b))).then_some(NoSize::TooLarge)
        }
        _ => None,
    }
}

/// Whether `expr` is a condition, and no size and no number.
pub(crate) fn is_condition(expr: &Expr) -> bool {
    match inner(expr) {
        Expr::Unary(unary) => matches!(unary.op, UnOp::Not(_)),
        Expr::Binary(binary) => matches!(
            binary.op,
            BinOp::And(_)
                | BinOp::Or(_)
                | BinOp::Eq(_)
                | BinOp::Ne(_)
                | BinOp::Lt(_)
                | BinOp::Le(_)
                | BinOp::Gt(_)
                | BinOp::Ge(_)
        ),
        _ => false,
    }
}

/// Whether `expr` is a size, as a part of it is converted to `usize`: `(1.5 * N as f32) as usize`.
pub(crate) fn is_converted_to_size(expr: &Expr) -> bool {
    match inner(expr) {
        Expr::Cast(cast) => {
            matches!(&*cast.ty, syn::Type::Path(ty) if ty.path.is_ident("usize"))
        }
        Expr::Binary(binary) => {
            is_converted_to_size(&binary.left) || is_converted_to_size(&binary.right)
        }
        _ => false,
    }
}

/// Arithmetic on literals; integers stand for the numbers they are.
pub(super) fn eval_real(expr: &Expr) -> Known<f64> {
    match inner(expr) {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => Known::from_option(int.base10_parse().ok()),
            Lit::Float(float) => Known::from_option(float.base10_parse().ok()),
            _ => Known::Wrong,
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => match eval_real(&unary.expr) {
            Known::Value(value) => Known::Value(-value),
            other => other,
        },
        Expr::Binary(binary) => match (eval_real(&binary.left), eval_real(&binary.right)) {
            (Known::Value(a), Known::Value(b)) => match binary.op {
                BinOp::Add(_) => Known::Value(a + b),
                BinOp::Sub(_) => Known::Value(a - b),
                BinOp::Mul(_) => Known::Value(a * b),
                // Rust divides integers as integers: leave that to rustc.
                BinOp::Div(_) if is_float(&binary.left) || is_float(&binary.right) => {
                    Known::Value(a / b)
                }
                _ => Known::Later,
            },
            (Known::Wrong, _) | (_, Known::Wrong) => Known::Wrong,
            _ => Known::Later,
        },
        other => match not_constant::argument_of_root(other).map(eval_real) {
            Some(Known::Value(value)) => Known::Value(value.sqrt()),
            Some(known) => known,
            None => later(other),
        },
    }
}

fn is_float(expr: &Expr) -> bool {
    match inner(expr) {
        Expr::Lit(lit) => matches!(lit.lit, Lit::Float(_)),
        Expr::Unary(unary) => is_float(&unary.expr),
        Expr::Binary(binary) => is_float(&binary.left),
        other => not_constant::argument_of_root(other).is_some(),
    }
}

/// Expressions that rustc may be able to turn into a number.
fn later<T>(expr: &Expr) -> Known<T> {
    match expr {
        Expr::Path(_)
        | Expr::Call(_)
        | Expr::MethodCall(_)
        | Expr::Cast(_)
        | Expr::Block(_)
        | Expr::If(_)
        | Expr::Match(_)
        | Expr::Field(_)
        | Expr::Index(_)
        | Expr::Const(_)
        | Expr::Unsafe(_)
        | Expr::Macro(_)
        | Expr::Unary(_) => Known::Later,
        _ => Known::Wrong,
    }
}

/// Without parentheses, invisible groups and the braces around a single expression.
pub(super) fn inner(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(paren) => inner(&paren.expr),
        Expr::Group(group) => inner(&group.expr),
        Expr::Block(block) if block.label.is_none() && block.attrs.is_empty() => {
            match block.block.stmts.as_slice() {
                [syn::Stmt::Expr(expr, None)] => inner(expr),
                _ => expr,
            }
        }
        _ => expr,
    }
}
