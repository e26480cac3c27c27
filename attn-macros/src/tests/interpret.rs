//! A small interpreter of Rust expressions, which evaluates what the macro writes, in code and in documentation.

use quote::ToTokens;
use syn::{BinOp, Expr, Lit, UnOp};

use crate::score::eval::Value;

/// The meaning of names and calls in the expression.
pub(super) trait Scope {
    fn variable(&self, name: &str) -> Option<Value>;

    /// `receiver.method(args)`, for a receiver that is not a value.
    fn method(&self, receiver: &str, method: &str, args: &[Value]) -> Option<Value> {
        let _ = (receiver, method, args);
        None
    }
}

pub(super) fn interpret(text: &str, scope: &dyn Scope) -> Value {
    let expr = syn::parse_str(text).unwrap_or_else(|error| panic!("`{text}`: {error}"));
    value(&expr, scope)
}

/// The value of `expr`. Panics on expressions that these tests do not expect.
pub(super) fn value(expr: &Expr, scope: &dyn Scope) -> Value {
    match expr {
        Expr::Paren(inner) => value(&inner.expr, scope),
        Expr::Block(block) => block_value(&block.block, scope),
        Expr::Lit(lit) => literal(&lit.lit),
        Expr::Path(_) => {
            let name = name_of(expr);
            scope
                .variable(&name)
                .unwrap_or_else(|| panic!("unknown name `{name}`"))
        }
        Expr::Unary(unary) => match (&unary.op, value(&unary.expr, scope)) {
            (UnOp::Not(_), Value::Bool(a)) => Value::Bool(!a),
            (UnOp::Neg(_), Value::Float(a)) => Value::Float(-a),
            (op, a) => unexpected(op, &[a]),
        },
        Expr::Binary(op) => binary(&op.op, value(&op.left, scope), value(&op.right, scope)),
        Expr::If(branch) => match (value(&branch.cond, scope), &branch.else_branch) {
            (Value::Bool(true), _) => block_value(&branch.then_branch, scope),
            (Value::Bool(false), Some((_, otherwise))) => value(otherwise, scope),
            (other, _) => panic!("`if` without `else`, or of {other:?}"),
        },
        Expr::Cast(cast) => match (value(&cast.expr, scope), type_name(&cast.ty).as_str()) {
            (Value::Int(a), "f64") => Value::Float(a as f64),
            (Value::Int(a), "i64") => Value::Int(a),
            (Value::Float(a), "i64") => Value::Int(a as i64),
            (a, ty) => panic!("{a:?} as {ty}"),
        },
        Expr::MethodCall(call) => method(call, scope),
        Expr::Call(call) => match &*call.args.iter().collect::<Vec<_>>() {
            [Expr::Reference(list)] => fold(&name_of(&call.func), &list.expr, scope),
            args => function(
                &name_of(&call.func),
                args.iter().map(|arg| value(arg, scope)).collect(),
            ),
        },
        other => unexpected(other, &[]),
    }
}

fn block_value(block: &syn::Block, scope: &dyn Scope) -> Value {
    match block.stmts.as_slice() {
        [syn::Stmt::Expr(expr, None)] => value(expr, scope),
        _ => unexpected(block, &[]),
    }
}

fn name_of(expr: &Expr) -> String {
    let Expr::Path(path) = expr else {
        return unexpected(expr, &[]);
    };
    let last = path.path.segments.last();
    last.map(|segment| segment.ident.to_string())
        .unwrap_or_default()
}

fn type_name(ty: &syn::Type) -> String {
    ty.to_token_stream().to_string()
}

/// Panics: the macro wrote an unexpected expression.
fn unexpected<T>(found: &impl ToTokens, operands: &[Value]) -> T {
    panic!("`{}` of {operands:?}", found.to_token_stream())
}

fn literal(lit: &Lit) -> Value {
    match lit {
        Lit::Int(int) => Value::Int(int.base10_parse().expect("an i64")),
        Lit::Float(float) => Value::Float(float.base10_parse().expect("an f64")),
        Lit::Bool(bool) => Value::Bool(bool.value),
        other => unexpected(other, &[]),
    }
}

fn binary(op: &BinOp, a: Value, b: Value) -> Value {
    match (a, b) {
        // Documentation may write a float without its point. rustc checks emitted code.
        (Value::Int(a), Value::Float(b)) => float(op, a as f64, b),
        (Value::Float(a), Value::Int(b)) => float(op, a, b as f64),
        (Value::Int(a), Value::Int(b)) => int(op, a, b),
        (Value::Float(a), Value::Float(b)) => float(op, a, b),
        (Value::Bool(a), Value::Bool(b)) => match op {
            BinOp::And(_) => Value::Bool(a && b),
            BinOp::Or(_) => Value::Bool(a || b),
            _ => unexpected(op, &[Value::Bool(a), Value::Bool(b)]),
        },
        (a, b) => unexpected(op, &[a, b]),
    }
}

fn int(op: &BinOp, a: i64, b: i64) -> Value {
    match op {
        BinOp::Add(_) => Value::Int(a + b),
        BinOp::Sub(_) => Value::Int(a - b),
        BinOp::Mul(_) => Value::Int(a * b),
        BinOp::Div(_) => Value::Int(a / b),
        BinOp::Rem(_) => Value::Int(a % b),
        BinOp::Eq(_) => Value::Bool(a == b),
        BinOp::Lt(_) => Value::Bool(a < b),
        BinOp::Le(_) => Value::Bool(a <= b),
        _ => unexpected(op, &[Value::Int(a), Value::Int(b)]),
    }
}

fn float(op: &BinOp, a: f64, b: f64) -> Value {
    match op {
        BinOp::Add(_) => Value::Float(a + b),
        BinOp::Sub(_) => Value::Float(a - b),
        BinOp::Mul(_) => Value::Float(a * b),
        BinOp::Div(_) => Value::Float(a / b),
        _ => unexpected(op, &[Value::Float(a), Value::Float(b)]),
    }
}

fn method(call: &syn::ExprMethodCall, scope: &dyn Scope) -> Value {
    let name = call.method.to_string();
    let args: Vec<_> = call.args.iter().map(|arg| value(arg, scope)).collect();
    if let Expr::Path(_) = &*call.receiver
        && let Some(value) = scope.method(&name_of(&call.receiver), &name, &args)
    {
        return value;
    }
    let receiver = value(&call.receiver, scope);
    function(&name, [vec![receiver], args].concat())
}

fn function(name: &str, args: Vec<Value>) -> Value {
    match (name, args.as_slice()) {
        ("abs", [Value::Int(a)]) => Value::Int(a.abs()),
        ("exp", [Value::Float(a)]) => Value::Float(a.exp()),
        ("ln", [Value::Float(a)]) => Value::Float(a.ln()),
        ("tanh", [Value::Float(a)]) => Value::Float(a.tanh()),
        ("min", [Value::Int(a), Value::Int(b)]) => Value::Int(*a.min(b)),
        ("max", [Value::Int(a), Value::Int(b)]) => Value::Int(*a.max(b)),
        (name, args) => panic!("no function {name} of {args:?}"),
    }
}

/// `product(&[a, b, ..])` and `total(&[a, b, ..])`.
fn fold(name: &str, list: &Expr, scope: &dyn Scope) -> Value {
    let Expr::Array(list) = list else {
        return unexpected(list, &[]);
    };
    let numbers = list.elems.iter().map(|expr| match value(expr, scope) {
        Value::Int(value) => value,
        other => panic!("{name} of {other:?}"),
    });
    Value::Int(match name {
        "product" => numbers.product(),
        "total" => numbers.sum(),
        other => panic!("no function {other} of a list"),
    })
}
