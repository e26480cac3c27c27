//! The expressions of masks and score modifications.
//!
//! A mask is a boolean expression over `b, h, q_idx, kv_idx, q_len, kv_len`; a score modification is a float expression over
//! `score` and those. The built-in ones are definitions in this language ([`builtin`]). The emitters, the drawings in the
//! documentation and the tests treat built-in and custom ones alike.

pub(crate) mod budget;
pub(crate) mod builtin;
pub(crate) mod diff;
pub(crate) mod eval;
pub(crate) mod loops;
mod numbers;
pub(crate) mod prove;
pub(crate) mod share;
pub(crate) mod split;
pub(crate) mod vanish;

use std::borrow::Cow;
use std::fmt;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Not, Rem, Sub};

use crate::spec::{Real, Size};

/// The name of a tensor.
pub(crate) type Name = Cow<'static, str>;

/// An expression. Integers are indices, lengths and sizes; `score`, numbers and parameters are floats; a
/// conversion between the two is always written. Integer division rounds towards zero, as Rust's does.
///
/// Two are equal if they are the same operations on the same operands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Expr {
    /// A number that the expression is a function of: a float. A score has one, [`Expr::SCORE`].
    Operand(usize),
    /// An index or a length: an integer.
    Var(Var),
    Int(Size),
    Float(Real),
    Bool(bool),
    /// An element of a learned tensor: a float.
    Param {
        name: Name,
        index: Vec<Expr>,
    },
    /// An element of data of the call.
    Data {
        data: Data,
        index: Vec<Expr>,
    },
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// `if condition { then } else { otherwise }`
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Var {
    B,
    H,
    QIdx,
    KvIdx,
    QLen,
    KvLen,
}

/// Data that a layer takes at the call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Data {
    /// `padding[b, q_idx, kv_idx]`: whether the key is valid for the query. A boolean.
    Padding,
    /// `document[b, q_idx]`: the document of a query. An integer.
    QueryDocument,
    /// `kv_document[b, kv_idx]`: the document of a key. An integer.
    KeyDocument,
    /// The declared type: integers, floats or booleans.
    Declared { name: Name, ty: Type },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unary {
    Not,
    Abs,
    Exp,
    Ln,
    Sqrt,
    Sin,
    Cos,
    Tanh,
    Sigmoid,
    Activation(Activation),
    /// The derivative of an activation. There is none of it again.
    Slope(Activation),
    /// The largest integer below, as a float.
    Floor,
    /// From an integer to a float.
    ToFloat,
    /// From a float to an integer, towards zero.
    ToInt,
}

/// A function of one number with a derivative of its own: no formula of other functions has its limits at infinity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Activation {
    Gelu,
    GeluTanh,
    Relu,
    ReluSquared,
    Silu,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Min,
    Max,
    /// The exponent is a number.
    Pow,
    Eq,
    Lt,
    Le,
    And,
    Or,
}

/// The three kinds of values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Type {
    Int,
    Float,
    Bool,
}

impl Activation {
    /// In a declaration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu_tanh",
            Activation::Relu => "relu",
            Activation::ReluSquared => "relu_squared",
            Activation::Silu => "silu",
        }
    }

    /// The type in `attn::nn`.
    pub(crate) const fn ty(self) -> &'static str {
        match self {
            Activation::Gelu => "Gelu",
            Activation::GeluTanh => "GeluTanh",
            Activation::Relu => "Relu",
            Activation::ReluSquared => "ReluSquared",
            Activation::Silu => "Silu",
        }
    }
}

impl Data {
    /// The type of an element.
    pub(crate) fn ty(&self) -> Type {
        match self {
            Data::Padding => Type::Bool,
            Data::QueryDocument | Data::KeyDocument => Type::Int,
            Data::Declared { ty, .. } => *ty,
        }
    }
}

impl Expr {
    /// The incoming score.
    pub(crate) const SCORE: Expr = Expr::Operand(0);

    pub(crate) fn float(value: f64) -> Expr {
        Expr::Float(Real::known(value))
    }

    /// `op(self)`. Constants fold as they are built.
    pub(crate) fn unary(self, op: Unary) -> Expr {
        budget::count(1);
        let expr = Expr::Unary(op, Box::new(self));
        eval::constant(&expr).unwrap_or(expr)
    }

    /// `self op other`. Constants fold as they are built.
    pub(crate) fn binary(self, op: Binary, other: impl Into<Expr>) -> Expr {
        budget::count(1);
        let expr = Expr::Binary(op, Box::new(self), Box::new(other.into()));
        eval::constant(&expr).unwrap_or(expr)
    }

    pub(crate) fn abs(self) -> Expr {
        self.unary(Unary::Abs)
    }

    pub(crate) fn to_float(&self) -> Expr {
        self.clone().unary(Unary::ToFloat)
    }

    pub(crate) fn min(self, other: impl Into<Expr>) -> Expr {
        self.binary(Binary::Min, other)
    }

    pub(crate) fn max(self, other: impl Into<Expr>) -> Expr {
        self.binary(Binary::Max, other)
    }

    pub(crate) fn equals(self, other: impl Into<Expr>) -> Expr {
        self.binary(Binary::Eq, other)
    }

    pub(crate) fn less(self, other: impl Into<Expr>) -> Expr {
        self.binary(Binary::Lt, other)
    }

    pub(crate) fn at_most(self, other: impl Into<Expr>) -> Expr {
        self.binary(Binary::Le, other)
    }

    /// `if self { then } else { otherwise }`
    pub(crate) fn select(self, then: impl Into<Expr>, otherwise: impl Into<Expr>) -> Expr {
        Expr::Select(
            Box::new(self),
            Box::new(then.into()),
            Box::new(otherwise.into()),
        )
    }

    /// The same function of another score.
    pub(crate) fn of(&self, score: &Expr) -> Expr {
        self.with_operands(&|_| score.clone())
    }

    /// This expression, with others in place of its operands.
    pub(crate) fn with_operands(&self, operand: &dyn Fn(usize) -> Expr) -> Expr {
        let of = |part: &Expr| Box::new(part.with_operands(operand));
        match self {
            Expr::Operand(index) => operand(*index),
            Expr::Unary(op, a) => Expr::Unary(*op, of(a)),
            Expr::Binary(op, a, b) => Expr::Binary(*op, of(a), of(b)),
            Expr::Select(condition, a, b) => Expr::Select(of(condition), of(a), of(b)),
            leaf => leaf.clone(),
        }
    }

    /// This expression, with another one in place of each part that is `part`.
    pub(crate) fn with(&self, part: &Expr, other: &Expr) -> Expr {
        let of = |expr: &Expr| Box::new(expr.with(part, other));
        match self {
            expr if expr == part => other.clone(),
            Expr::Unary(op, a) => Expr::Unary(*op, of(a)),
            Expr::Binary(op, a, b) => Expr::Binary(*op, of(a), of(b)),
            Expr::Select(condition, a, b) => Expr::Select(of(condition), of(a), of(b)),
            leaf => leaf.clone(),
        }
    }

    /// Its operands.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        budget::count(1);
        match self {
            Expr::Operand(_) | Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) => {
                Vec::new()
            }
            Expr::Param { index, .. } | Expr::Data { index, .. } => index.iter().collect(),
            Expr::Unary(_, a) => vec![a],
            Expr::Binary(_, a, b) => vec![a, b],
            Expr::Select(a, b, c) => vec![a, b, c],
        }
    }

    /// The number of operations and operands.
    pub(crate) fn size(&self) -> usize {
        let children = self.children().into_iter();
        1 + children.map(Expr::size).sum::<usize>()
    }

    /// Whether any part of the expression satisfies `test`.
    pub(crate) fn any(&self, test: &dyn Fn(&Expr) -> bool) -> bool {
        test(self) || self.children().iter().any(|child| child.any(test))
    }

    pub(crate) fn reads(&self, var: Var) -> bool {
        self.any(&|expr| matches!(expr, Expr::Var(found) if *found == var))
    }

    /// Whether it reads data of this name, which the body declares.
    pub(crate) fn reads_data(&self, name: &str) -> bool {
        let is_it =
            |data: &Data| matches!(data, Data::Declared { name: found, .. } if found == name);
        self.any(&|expr| matches!(expr, Expr::Data { data, .. } if is_it(data)))
    }

    /// The type of its value.
    pub(crate) fn ty(&self) -> Type {
        match self {
            Expr::Operand(_) | Expr::Float(_) | Expr::Param { .. } => Type::Float,
            Expr::Var(_) | Expr::Int(_) => Type::Int,
            Expr::Bool(_) => Type::Bool,
            Expr::Data { data, .. } => data.ty(),
            Expr::Unary(Unary::ToInt, _) => Type::Int,
            Expr::Unary(Unary::Not, _) => Type::Bool,
            Expr::Unary(Unary::Abs, a) => a.ty(),
            Expr::Unary(..) => Type::Float,
            Expr::Binary(op, ..) if op.is_condition() => Type::Bool,
            Expr::Binary(_, a, _) => a.ty(),
            Expr::Select(_, then, _) => then.ty(),
        }
    }

    /// Whether it is known before the call, apart from indices and lengths: it reads neither the score nor a learned tensor.
    pub(crate) fn is_constant(&self) -> bool {
        !self.any(&|expr| matches!(expr, Expr::Operand(_) | Expr::Param { .. }))
    }
}

impl From<Var> for Expr {
    fn from(var: Var) -> Expr {
        Expr::Var(var)
    }
}

impl From<&Size> for Expr {
    fn from(size: &Size) -> Expr {
        Expr::Int(size.clone())
    }
}

impl From<u64> for Expr {
    fn from(value: u64) -> Expr {
        Expr::Int(Size::known(value))
    }
}

macro_rules! operators {
    ($($Trait:ident $method:ident $Op:ident;)*) => {$(
        impl<T: Into<Expr>> $Trait<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                self.binary(Binary::$Op, other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
}

impl Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        self.unary(Unary::Not)
    }
}

impl fmt::Display for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Var::B => "b",
            Var::H => "h",
            Var::QIdx => "q_idx",
            Var::KvIdx => "kv_idx",
            Var::QLen => "q_len",
            Var::KvLen => "kv_len",
        })
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Data::Padding => "padding",
            Data::QueryDocument => "document",
            Data::KeyDocument => "kv_document",
            Data::Declared { name, .. } => name,
        })
    }
}

impl Binary {
    /// Whether the value is a condition.
    fn is_condition(self) -> bool {
        matches!(
            self,
            Binary::Eq | Binary::Lt | Binary::Le | Binary::And | Binary::Or
        )
    }

    /// The symbol and its precedence, or `None` for functions.
    pub(crate) fn symbol(self) -> Option<(&'static str, u8)> {
        Some(match self {
            Binary::Mul => ("*", 6),
            Binary::Div => ("/", 6),
            Binary::Rem => ("%", 6),
            Binary::Add => ("+", 5),
            Binary::Sub => ("-", 5),
            Binary::Eq => ("==", 4),
            Binary::Lt => ("<", 4),
            Binary::Le => ("<=", 4),
            Binary::And => ("&&", 3),
            Binary::Or => ("||", 2),
            Binary::Min | Binary::Max | Binary::Pow => return None,
        })
    }
}

impl Binary {
    /// The name of a function.
    fn function(self) -> &'static str {
        match self {
            Binary::Min => "min",
            Binary::Max => "max",
            _ => "pow",
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_expr(f, self, 0)
    }
}

/// Writes `expr`, in parentheses if its precedence is below `level`.
fn write_expr(f: &mut fmt::Formatter<'_>, expr: &Expr, level: u8) -> fmt::Result {
    budget::count(1);
    match expr {
        Expr::Operand(0) => f.write_str("score"),
        Expr::Operand(index) => write!(f, "x{index}"),
        Expr::Var(var) => write!(f, "{var}"),
        Expr::Int(size) => write!(f, "{size}"),
        Expr::Float(real) => write!(f, "{real}"),
        Expr::Bool(value) => write!(f, "{value}"),
        Expr::Param { name, index } => write_index(f, name, index),
        Expr::Data { data, index } => write_index(f, &data.to_string(), index),
        Expr::Unary(op, a) => write_unary(f, *op, a),
        Expr::Binary(op, a, b) => match op.symbol() {
            Some((symbol, tightness)) => {
                let (open, close) = if tightness < level {
                    ("(", ")")
                } else {
                    ("", "")
                };
                f.write_str(open)?;
                write_expr(f, a, tightness)?;
                write!(f, " {symbol} ")?;
                write_expr(f, b, tightness + 1)?;
                f.write_str(close)
            }
            None => write!(f, "{}({a}, {b})", op.function()),
        },
        Expr::Select(condition, then, otherwise) => {
            let (open, close) = if level > 0 { ("(", ")") } else { ("", "") };
            write!(
                f,
                "{open}if {condition} {{ {then} }} else {{ {otherwise} }}{close}"
            )
        }
    }
}

fn write_unary(f: &mut fmt::Formatter<'_>, op: Unary, a: &Expr) -> fmt::Result {
    let name = match op {
        Unary::Not => {
            f.write_str("!")?;
            return write_expr(f, a, 8);
        }
        Unary::ToFloat | Unary::ToInt => {
            write_expr(f, a, 8)?;
            return f.write_str(if op == Unary::ToFloat {
                " as f64"
            } else {
                " as i64"
            });
        }
        Unary::Abs => "abs",
        Unary::Exp => "exp",
        Unary::Ln => "ln",
        Unary::Sqrt => "sqrt",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Tanh => "tanh",
        Unary::Sigmoid => "sigmoid",
        Unary::Activation(activation) => activation.name(),
        Unary::Slope(activation) => {
            return write!(f, "{}'({a})", activation.name());
        }
        Unary::Floor => "floor",
    };
    write!(f, "{name}({a})")
}

fn write_index(f: &mut fmt::Formatter<'_>, name: &str, index: &[Expr]) -> fmt::Result {
    let index: Vec<_> = index.iter().map(Expr::to_string).collect();
    write!(f, "{name}[{}]", index.join(", "))
}
