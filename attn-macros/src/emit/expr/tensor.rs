//! Expressions as operations on tensors: of the score, on `[batch, heads, query, key]`, and of the elements of operands of one shape.
//!
//! A part that depends on indices only is a closure over them. Every other operation is one line. A line reads each name once,
//! because dfdx cannot differentiate an operation that gets one tensor twice. Its result takes the name of an operand, so a chain
//! of operations reads as one variable that changes.

use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{host, index_function, lengths};
use crate::emit::{Layer, var};
use crate::score::loops::operands;
use crate::score::{Binary, Expr, Type, Unary};

/// The lines that turn `scores` into the value of `expr`; `ty` is the type of the tensor.
pub(in crate::emit) fn emit_map(cx: &Layer<'_>, expr: &Expr, ty: &TokenStream) -> TokenStream {
    let mut lower = Lower::new(Source::Scores { cx, ty }, expr);
    lower.lines = lengths(expr);
    let value = lower.value(expr);
    if reads(expr, 0) == 0 {
        lower.line(
            &var("scores"),
            Type::Float,
            quote!(p::replace(scores, #value)?),
        );
    } else if value != "scores" {
        lower.lines.extend(quote!(let scores = #value;));
    }
    lower.lines
}

/// The result of `expr` as a block: of tensors without a tape, by their variables, of which the first one gets `tape`. `nn` is the
/// path of the activations.
pub(crate) fn emit_elementwise(expr: &Expr, of: &[TokenStream], nn: &TokenStream) -> TokenStream {
    let like = &of[0];
    let mut lower = Lower::new(Source::Operands { like, nn }, expr);
    let value = lower.value(expr);
    let lines = lower.lines;
    let names = (0..of.len()).map(operand_name);
    let (first, others) = (&of[0], &of[1..]);
    quote!({
        let (#(#names,)*) = (p::on(tape, &#first), #(#others.retaped::<T>(),)*);
        #lines
        Ok(#value)
    })
}

/// The variable of an operand.
fn operand_name(index: usize) -> Ident {
    format_ident!("x{index}")
}

/// How often an operand is read.
fn reads(expr: &Expr, operand: usize) -> usize {
    match expr {
        Expr::Operand(index) => usize::from(*index == operand),
        other => {
            let children = other.children().into_iter();
            children.map(|child| reads(child, operand)).sum()
        }
    }
}

/// The tensors that an expression is of.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// `scores`, of this type.
    Scores {
        cx: &'a Layer<'a>,
        ty: &'a TokenStream,
    },
    /// `x0`, `x1`, .., of the shape of this tensor. The expression reads no place and no parameter.
    Operands {
        like: &'a TokenStream,
        nn: &'a TokenStream,
    },
}

struct Lower<'a> {
    source: Source<'a>,
    lines: TokenStream,
    /// The reads of each operand that are still to come.
    reads_left: Vec<usize>,
    /// The number of names of each kind.
    names: BTreeMap<&'static str, usize>,
    /// The branches that the line is in whose gradient must be kept out where they are not taken.
    branches: Vec<Branch>,
}

/// The side of an `if` where `condition` is `taken`.
#[derive(Clone)]
struct Branch {
    condition: Ident,
    taken: bool,
}

impl<'a> Lower<'a> {
    fn new(source: Source<'a>, expr: &Expr) -> Self {
        let operands = operands(expr).last().map_or(0, |last| last + 1);
        Lower {
            source,
            lines: TokenStream::new(),
            reads_left: (0..operands).map(|operand| reads(expr, operand)).collect(),
            names: BTreeMap::new(),
            branches: Vec::new(),
        }
    }

    /// The variable that holds the value of `expr`, a float or a condition, for every score.
    fn value(&mut self, expr: &Expr) -> Ident {
        match expr {
            Expr::Operand(index) => self.operand(*index),
            Expr::Param { name, index } => self.param(name, index),
            constant if constant.is_constant() => self.place(constant),
            Expr::Unary(op, a) => {
                let a = self.value(a);
                let value = match (*op, self.source) {
                    (Unary::Activation(activation), Source::Operands { nn, .. }) => {
                        let ty = format_ident!("{}", activation.ty());
                        quote!(<#nn::#ty as p::Activation>::compose(#a)?)
                    }
                    (op, _) => {
                        let function = unary_function(op);
                        quote!(p::#function(#a)?)
                    }
                };
                self.line(&a, expr.ty(), value)
            }
            Expr::Binary(op, a, b) => match self.with_number(*op, a, b) {
                Some(name) => name,
                None => self.binary(*op, a, b),
            },
            Expr::Select(condition, then, otherwise) => self.select(condition, then, otherwise),
            // The others are constants.
            other => self.place(other),
        }
    }

    /// `let name: .. = value;`
    fn line(&mut self, name: &Ident, ty: Type, value: TokenStream) -> Ident {
        let ty = match (self.source, ty) {
            (Source::Operands { .. }, _) => None,
            (Source::Scores { cx, .. }, Type::Bool) => {
                let heads = cx.spec.heads.arg();
                let query = cx.query_var();
                let key = cx.key_var();
                Some(quote!(: p::Condition<B, #heads, #query, #key, D, T>))
            }
            (Source::Scores { ty, .. }, _) => Some(quote!(: #ty)),
        };
        self.lines.extend(quote!(let #name #ty = #value;));
        name.clone()
    }

    /// A name that is not in use: `kind`, `kind_2`, ...
    fn name(&mut self, kind: &'static str) -> Ident {
        let count = self.names.entry(kind).or_default();
        *count += 1;
        let name = match *count {
            1 => kind.to_owned(),
            count => format!("{kind}_{count}"),
        };
        var(&name)
    }

    /// An operand, or the incoming score. All reads of it but the last copy it.
    fn operand(&mut self, index: usize) -> Ident {
        self.reads_left[index] -= 1;
        let (name, copy) = match self.source {
            Source::Scores { .. } => (var("scores"), "score"),
            Source::Operands { .. } => (operand_name(index), "x"),
        };
        let name = match self.reads_left[index] {
            0 => name,
            _ => {
                let copy = self.name(copy);
                let value = quote!(p::fresh(p::WithEmptyTape::with_empty_tape(&#name))?);
                self.line(&copy, Type::Float, value)
            }
        };
        self.guarded(name)
    }

    /// The elements of a learned tensor.
    fn param(&mut self, name: &str, index: &[Expr]) -> Ident {
        let axes = index.iter().map(|index| host(index, 0));
        let body = quote!([#(#axes),*]);
        let parts: Vec<_> = index.iter().collect();
        let function = index_function(&parts, body);
        let tensor = match self.source {
            Source::Scores { cx, .. } if cx.graph.is_given(name) => {
                let given = var(&format!("param_{name}"));
                quote!(&#given)
            }
            _ => {
                let field = format_ident!("{name}");
                quote!(&layer.#field.weight)
            }
        };
        let name = self.name("bias");
        let value = quote!(p::index_param(#tensor, axes, #function)?);
        self.line(&name, Type::Float, value);
        self.guarded(name)
    }

    /// A function of the place alone.
    fn place(&mut self, expr: &Expr) -> Ident {
        if let Source::Operands { like, .. } = self.source {
            let name = self.name("number");
            let number = host(expr, 0);
            return self.line(&name, Type::Float, quote!(p::filled(&#like, #number)?));
        }
        let (kind, function) = match expr.ty() {
            Type::Bool => ("condition", "index_condition"),
            _ => ("bias", "index_floats"),
        };
        let name = self.name(kind);
        let function = format_ident!("{function}");
        let closure = index_function(&[expr], host(expr, 0));
        self.line(
            &name,
            expr.ty(),
            quote!(p::#function(&device, axes, #closure)?),
        )
    }

    /// An operation with a number that is the same for every score.
    fn with_number(&mut self, op: Binary, a: &Expr, b: &Expr) -> Option<Ident> {
        let number = |expr: &Expr| is_number(expr).then(|| host(expr, 9));
        let (function, tensor, number) = match (op, number(a), number(b)) {
            (Binary::Add, None, Some(b)) => ("add_scalar", a, b),
            (Binary::Add, Some(a), None) => ("add_scalar", b, a),
            (Binary::Sub, None, Some(b)) => ("add_scalar", a, quote!(-#b)),
            (Binary::Mul, None, Some(b)) => ("mul_scalar", a, b),
            (Binary::Mul, Some(a), None) => ("mul_scalar", b, a),
            (Binary::Div, None, Some(b)) => ("mul_scalar", a, quote!(1.0 / #b)),
            (Binary::Pow, None, Some(b)) => ("pow", a, b),
            _ => return None,
        };
        let function = format_ident!("{function}");
        let tensor = self.value(tensor);
        let value = quote!(p::#function(#tensor, #number)?);
        Some(self.line(&tensor, Type::Float, value))
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr) -> Ident {
        // The operand with the score comes last: its lines follow one another.
        let (a, b) = if operands(b).is_empty() {
            let b = self.value(b);
            (self.value(a), b)
        } else {
            let a = self.value(a);
            (a, self.value(b))
        };
        let function = binary_function(op);
        let value = quote!(p::#function(#a, #b)?);
        match op {
            Binary::Eq | Binary::Lt | Binary::Le => {
                let name = self.name("condition");
                self.line(&name, Type::Bool, value)
            }
            Binary::And | Binary::Or => self.line(&a, Type::Bool, value),
            _ => self.line(main(&a, &b), Type::Float, value),
        }
    }

    fn select(&mut self, condition: &Expr, then: &Expr, otherwise: &Expr) -> Ident {
        let name = self.value(condition);
        let mut branch = |taken: bool, expr: &Expr| {
            let guards = self.branches.len();
            if is_singular(expr) {
                let condition = name.clone();
                self.branches.push(Branch { condition, taken });
            }
            let value = self.value(expr);
            self.branches.truncate(guards);
            value
        };
        let a = branch(true, then);
        let b = branch(false, otherwise);
        let ty = then.ty();
        let function = match ty {
            Type::Bool => quote!(select_condition),
            _ => quote!(select),
        };
        self.line(main(&a, &b), ty, quote!(p::#function(#name, #a, #b)?))
    }

    /// A value that branches read. A branch that is not taken adds no gradient.
    fn guarded(&mut self, name: Ident) -> Ident {
        for Branch { condition, taken } in self.branches.clone() {
            let value = quote!(p::guard(#name, &#condition, #taken)?);
            self.line(&name, Type::Float, value);
        }
        name
    }
}

/// The operand whose name the result takes over.
fn main<'a>(a: &'a Ident, b: &'a Ident) -> &'a Ident {
    if b == "scores" { b } else { a }
}

/// Whether a derivative may be infinite or NaN, also of an operand that is infinite. (dfdx multiplies it with the 0 that comes from where a
/// branch is not taken, and that is NaN.)
fn is_singular(expr: &Expr) -> bool {
    expr.any(&|part| match part {
        Expr::Unary(Unary::Exp | Unary::Ln | Unary::Sqrt | Unary::Sin | Unary::Cos, _) => true,
        Expr::Binary(Binary::Pow, ..) => true,
        Expr::Binary(Binary::Mul, a, b) => a.ty() == Type::Float && !is_number(a) && !is_number(b),
        Expr::Binary(Binary::Div, a, b) => a.ty() == Type::Float && !is_number(b),
        _ => false,
    })
}

/// The same number for every score.
fn is_number(expr: &Expr) -> bool {
    expr.ty() == Type::Float
        && expr.is_constant()
        && !expr.any(&|part| matches!(part, Expr::Var(_) | Expr::Data { .. }))
}

fn unary_function(op: Unary) -> Ident {
    format_ident!(
        "{}",
        match op {
            Unary::Not => "not",
            Unary::Abs => "abs",
            Unary::Exp => "exp",
            Unary::Ln => "ln",
            Unary::Sqrt => "sqrt",
            Unary::Sin => "sin",
            Unary::Cos => "cos",
            Unary::Tanh => "tanh",
            Unary::Sigmoid => "logistic",
            Unary::Floor => "floor",
            // A model has a function of its own for them, and integers do not read the score.
            Unary::Activation(activation) | Unary::Slope(activation) => activation.name(),
            Unary::ToFloat => "to_float",
            Unary::ToInt => "to_int",
        }
    )
}

fn binary_function(op: Binary) -> Ident {
    format_ident!(
        "{}",
        match op {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Rem => "rem",
            Binary::Min => "minimum",
            Binary::Max => "maximum",
            Binary::Pow => "pow",
            Binary::Eq => "equal",
            Binary::Lt => "less",
            Binary::Le => "at_most",
            Binary::And => "and",
            Binary::Or => "or",
        }
    )
}
