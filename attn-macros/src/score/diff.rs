//! Derivatives of expressions.

use super::{Binary, Expr, Unary};

/// The variable of a derivative.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrt<'a> {
    /// An operand. The score is the first one.
    Operand(usize),
    /// A learned tensor of this name: all elements of it that are read, as if they were one.
    Param(&'a str),
    /// The element of a learned tensor that is read at this index.
    Element(&'a str, &'a [Expr]),
}

/// The derivative of `expr`, a float. Where none exists, it follows PyTorch: 0 for `abs` at 0 and for `floor`, and half to each
/// side where the operands of `min` or `max` are equal.
pub(crate) fn diff(expr: &Expr, wrt: Wrt<'_>) -> Expr {
    let d = |expr: &Expr| diff(expr, wrt);
    match expr {
        Expr::Operand(index) => {
            let is_it = matches!(wrt, Wrt::Operand(operand) if operand == *index);
            Expr::float(if is_it { 1.0 } else { 0.0 })
        }
        Expr::Param { name, index } => {
            let is_it = match wrt {
                Wrt::Operand(_) => false,
                Wrt::Param(param) => param == *name,
                Wrt::Element(param, at) => param == *name && at == *index,
            };
            Expr::float(if is_it { 1.0 } else { 0.0 })
        }
        Expr::Unary(op, a) => diff_unary(*op, a, d(a)),
        Expr::Binary(op, a, b) => diff_binary(*op, (a, d(a)), (b, d(b))),
        Expr::Select(condition, then, otherwise) => select(condition, d(then), d(otherwise)),
        // Integers and booleans are piecewise constant: their derivative is 0.
        Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) | Expr::Data { .. } => {
            Expr::float(0.0)
        }
    }
}

fn diff_unary(op: Unary, a: &Expr, da: Expr) -> Expr {
    let a = a.clone();
    match op {
        Unary::Exp => mul(da, a.unary(Unary::Exp)),
        Unary::Ln => div(da, a),
        Unary::Tanh => {
            let tanh = a.unary(Unary::Tanh);
            mul(da, Expr::float(1.0) - tanh.clone() * tanh)
        }
        Unary::Sqrt => div(mul(da, Expr::float(0.5)), a.unary(Unary::Sqrt)),
        Unary::Sin => mul(da, a.unary(Unary::Cos)),
        Unary::Cos => mul(da, Expr::float(-1.0) * a.unary(Unary::Sin)),
        Unary::Sigmoid => {
            let sigmoid = a.unary(Unary::Sigmoid);
            mul(da, sigmoid.clone() * (Expr::float(1.0) - sigmoid))
        }
        Unary::Abs => {
            let sign = select(
                &a.clone().less(Expr::float(0.0)),
                Expr::float(-1.0),
                select(
                    &Expr::float(0.0).less(a),
                    Expr::float(1.0),
                    Expr::float(0.0),
                ),
            );
            mul(da, sign)
        }
        Unary::Activation(activation) => mul(da, a.unary(Unary::Slope(activation))),
        Unary::Slope(_) => {
            debug_assert!(false, "nothing differentiates a derivative");
            Expr::float(f64::NAN)
        }
        Unary::Floor | Unary::Not | Unary::ToFloat | Unary::ToInt => Expr::float(0.0),
    }
}

fn diff_binary(op: Binary, (a, da): (&Expr, Expr), (b, db): (&Expr, Expr)) -> Expr {
    let a = a.clone();
    let b = b.clone();
    match op {
        Binary::Add => add(da, db),
        Binary::Sub => sub(da, db),
        Binary::Mul => add(mul(da, b), mul(db, a)),
        Binary::Div if matches!(a, Expr::Float(_) | Expr::Param { .. }) => {
            sub(div(da, b.clone()), div(mul(db, a), b.clone() * b))
        }
        // The quotient and the reciprocal stand in other derivatives, too, and `b * b` may be 0 where `b` is not.
        Binary::Div => {
            let reciprocal = div(Expr::float(1.0), b.clone());
            sub(div(da, b.clone()), mul(mul(db, a / b), reciprocal))
        }
        // a - b trunc(a / b)
        Binary::Rem => {
            let quotient = a / b;
            let fraction = quotient.clone() % Expr::float(1.0);
            sub(da, mul(db, quotient - fraction))
        }
        // The exponent is a number.
        Binary::Pow => {
            let below = b.clone() - Expr::float(1.0);
            mul(da, mul(b, a.binary(Binary::Pow, below)))
        }
        Binary::Min => extremum(&a.clone().less(b.clone()), &b.less(a), da, db),
        Binary::Max => extremum(&b.clone().less(a.clone()), &a.less(b), da, db),
        Binary::Eq | Binary::Lt | Binary::Le | Binary::And | Binary::Or => Expr::float(0.0),
    }
}

/// `da` where `a` is taken, `db` where `b` is, the mean of both where they are equal. Each of the two occurs once: otherwise the
/// derivative of nested maxima would double with every level.
fn extremum(takes_a: &Expr, takes_b: &Expr, da: Expr, db: Expr) -> Expr {
    let zero = || Expr::float(0.0);
    let sum = add(select(takes_b, zero(), da), select(takes_a, zero(), db));
    let share = takes_b.clone().select(Expr::float(1.0), Expr::float(0.5));
    mul(sum, takes_a.clone().select(Expr::float(1.0), share))
}

/// Whether it is this number.
pub(crate) fn is(expr: &Expr, value: f64) -> bool {
    matches!(expr, Expr::Float(real) if real.value == Some(value))
}

// The operators, which leave out zeros and ones: most of a derivative consists of them.

fn add(a: Expr, b: Expr) -> Expr {
    match (is(&a, 0.0), is(&b, 0.0)) {
        (true, _) => b,
        (_, true) => a,
        _ => a + b,
    }
}

fn sub(a: Expr, b: Expr) -> Expr {
    match (is(&a, 0.0), is(&b, 0.0)) {
        (_, true) => a,
        (true, _) => mul(Expr::float(-1.0), b),
        _ => a - b,
    }
}

pub(super) fn mul(a: Expr, b: Expr) -> Expr {
    match () {
        () if is(&a, 0.0) || is(&b, 0.0) => Expr::float(0.0),
        () if is(&a, 1.0) => b,
        () if is(&b, 1.0) => a,
        () => scale(a, b),
    }
}

/// `a * b`, with the constants of both folded.
fn scale(a: Expr, b: Expr) -> Expr {
    match (a, b) {
        (Expr::Binary(Binary::Mul, x, y), Expr::Float(b)) if matches!(*x, Expr::Float(_)) => {
            mul(*x * Expr::Float(b), *y)
        }
        (a, b) => a * b,
    }
}

fn div(a: Expr, b: Expr) -> Expr {
    match () {
        () if is(&a, 0.0) => a,
        () if is(&b, 1.0) => a,
        () => a / b,
    }
}

fn select(condition: &Expr, then: Expr, otherwise: Expr) -> Expr {
    if is(&then, 0.0) && is(&otherwise, 0.0) {
        return then;
    }
    condition.clone().select(then, otherwise)
}
