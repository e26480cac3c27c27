//! Evaluates expressions during expansion: for the drawings in the documentation, and for tests of the definitions.

use super::{Binary, Data, Expr, Unary, Var};
use crate::spec::Size;

/// The values of the variables of an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point<'a> {
    pub(crate) b: i64,
    pub(crate) h: i64,
    pub(crate) q_idx: i64,
    pub(crate) kv_idx: i64,
    pub(crate) q_len: i64,
    pub(crate) kv_len: i64,
    pub(crate) score: f64,
    pub(crate) inputs: &'a dyn Inputs,
}

/// The inputs of an expression besides indices and the score.
pub(crate) trait Inputs: std::fmt::Debug {
    /// An element of a learned tensor.
    fn param(&self, name: &str, index: &[i64]) -> f64;
    /// An element of data of the call, if there are any.
    fn data(&self, data: &Data, index: &[i64]) -> Option<Value>;
}

/// Integers that are written, passed or made of floats go up to this, and down to its opposite.
pub(crate) const LARGEST_INTEGER: i64 = 1 << 31;

/// A value of one of the three types.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Value {
    Int(i64),
    Float(f64),
    Bool(bool),
}

/// The value of `expr` at `point`; `None` if a size in it is rustc's to evaluate, or it divides by zero.
pub(crate) fn eval(expr: &Expr, point: &Point<'_>) -> Option<Value> {
    Some(match expr {
        Expr::Operand(_) => Value::Float(point.score),
        Expr::Var(var) => Value::Int(var_at(*var, point)),
        Expr::Int(size) => Value::Int(i64::try_from(size.value?).ok()?),
        Expr::Float(real) => Value::Float(real.value?),
        Expr::Bool(value) => Value::Bool(*value),
        Expr::Param { name, index } => {
            Value::Float(point.inputs.param(name, &indices(index, point)?))
        }
        Expr::Data { data, index } => point.inputs.data(data, &indices(index, point)?)?,
        Expr::Unary(op, a) => unary(*op, eval(a, point)?)?,
        Expr::Binary(op, a, b) => match (op, eval(a, point)?) {
            // As in Rust, the other operand is not evaluated.
            (Binary::And, Value::Bool(false)) => Value::Bool(false),
            (Binary::Or, Value::Bool(true)) => Value::Bool(true),
            (op, a) => binary(*op, a, eval(b, point)?)?,
        },
        Expr::Select(condition, then, otherwise) => match eval(condition, point)? {
            Value::Bool(true) => eval(then, point)?,
            Value::Bool(false) => eval(otherwise, point)?,
            _ => return None,
        },
    })
}

/// Whether it reads no index, no length, no score and no tensor.
pub(crate) fn reads_nothing(expr: &Expr) -> bool {
    !expr.any(&|expr| {
        matches!(
            expr,
            Expr::Operand(_) | Expr::Var(_) | Expr::Param { .. } | Expr::Data { .. }
        )
    })
}

/// The first query and key of the first head and sequence.
const FIRST: Point<'_> = Point {
    b: 0,
    h: 0,
    q_idx: 0,
    kv_idx: 0,
    q_len: 0,
    kv_len: 0,
    score: 0.0,
    inputs: &Nothing,
};

/// The value of an expression that reads nothing.
pub(crate) fn value(expr: &Expr) -> Option<Value> {
    reads_nothing(expr).then(|| eval(expr, &FIRST)).flatten()
}

/// The value for the first query and key of the first head and sequence, of an expression that reads indices alone.
pub(crate) fn first(expr: &Expr) -> Option<Value> {
    let is_open = |part: &Expr| match part {
        Expr::Var(var) => matches!(var, Var::QLen | Var::KvLen),
        part => matches!(
            part,
            Expr::Operand(_) | Expr::Param { .. } | Expr::Data { .. }
        ),
    };
    (!expr.any(&is_open)).then(|| eval(expr, &FIRST)).flatten()
}

/// `expr` as a literal, if its operands are literals. A negative integer has no literal.
pub(crate) fn constant(expr: &Expr) -> Option<Expr> {
    let is_literal = |expr: &&Expr| matches!(expr, Expr::Int(_) | Expr::Float(_));
    if !expr.children().iter().all(is_literal) {
        return None;
    }
    match value(expr)? {
        Value::Int(value) => Some(Expr::Int(Size::known(u64::try_from(value).ok()?))),
        Value::Float(value) => value.is_finite().then(|| Expr::float(value)),
        Value::Bool(value) => Some(Expr::Bool(value)),
    }
}

/// A literal reads nothing.
#[derive(Debug)]
struct Nothing;

impl Inputs for Nothing {
    fn param(&self, _: &str, _: &[i64]) -> f64 {
        f64::NAN
    }

    fn data(&self, _: &Data, _: &[i64]) -> Option<Value> {
        None
    }
}

/// The truth of a mask at `point`.
pub(crate) fn holds(mask: &Expr, point: &Point<'_>) -> Option<bool> {
    match eval(mask, point)? {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

fn indices(index: &[Expr], point: &Point<'_>) -> Option<Vec<i64>> {
    let ints = index.iter().map(|expr| match eval(expr, point)? {
        Value::Int(value) => Some(value),
        _ => None,
    });
    ints.collect()
}

fn var_at(var: Var, point: &Point<'_>) -> i64 {
    match var {
        Var::B => point.b,
        Var::H => point.h,
        Var::QIdx => point.q_idx,
        Var::KvIdx => point.kv_idx,
        Var::QLen => point.q_len,
        Var::KvLen => point.kv_len,
    }
}

fn unary(op: Unary, a: Value) -> Option<Value> {
    Some(match (op, a) {
        (Unary::Not, Value::Bool(a)) => Value::Bool(!a),
        (Unary::Abs, Value::Int(a)) => Value::Int(a.checked_abs()?),
        (Unary::Abs, Value::Float(a)) => Value::Float(a.abs()),
        (Unary::Exp, Value::Float(a)) => Value::Float(a.exp()),
        (Unary::Ln, Value::Float(a)) => Value::Float(a.ln()),
        (Unary::Sqrt, Value::Float(a)) => Value::Float(a.sqrt()),
        (Unary::Sin, Value::Float(a)) => Value::Float(a.sin()),
        (Unary::Cos, Value::Float(a)) => Value::Float(a.cos()),
        (Unary::Tanh, Value::Float(a)) => Value::Float(a.tanh()),
        (Unary::Sigmoid, Value::Float(a)) => Value::Float(1.0 / (1.0 + (-a).exp())),
        (Unary::Floor, Value::Float(a)) => Value::Float(a.floor()),
        (Unary::ToFloat, Value::Int(a)) => Value::Float(a as f64),
        (Unary::ToInt, Value::Float(a)) => {
            Value::Int((a as i64).clamp(-LARGEST_INTEGER, LARGEST_INTEGER))
        }
        _ => return None,
    })
}

fn binary(op: Binary, a: Value, b: Value) -> Option<Value> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => int(op, a, b),
        (Value::Float(a), Value::Float(b)) => float(op, a, b),
        (Value::Bool(a), Value::Bool(b)) => match op {
            Binary::And => Some(Value::Bool(a && b)),
            Binary::Or => Some(Value::Bool(a || b)),
            _ => None,
        },
        _ => None,
    }
}

fn int(op: Binary, a: i64, b: i64) -> Option<Value> {
    let value = match op {
        Binary::Add => a.checked_add(b),
        Binary::Sub => a.checked_sub(b),
        Binary::Mul => a.checked_mul(b),
        Binary::Div => a.checked_div(b),
        Binary::Rem => a.checked_rem(b),
        Binary::Min => Some(a.min(b)),
        Binary::Max => Some(a.max(b)),
        Binary::Eq => return Some(Value::Bool(a == b)),
        Binary::Lt => return Some(Value::Bool(a < b)),
        Binary::Le => return Some(Value::Bool(a <= b)),
        Binary::Pow | Binary::And | Binary::Or => None,
    };
    value.map(Value::Int)
}

fn float(op: Binary, a: f64, b: f64) -> Option<Value> {
    Some(match op {
        Binary::Add => Value::Float(a + b),
        Binary::Sub => Value::Float(a - b),
        Binary::Mul => Value::Float(a * b),
        Binary::Div => Value::Float(a / b),
        Binary::Rem => Value::Float(a % b),
        Binary::Min => Value::Float(a.min(b)),
        Binary::Max => Value::Float(a.max(b)),
        Binary::Pow => Value::Float(a.powf(b)),
        Binary::Eq => Value::Bool(a == b),
        Binary::Lt => Value::Bool(a < b),
        Binary::Le => Value::Bool(a <= b),
        Binary::And | Binary::Or => return None,
    })
}
