//! Expressions as Rust: on indices, as closures that the host evaluates; on scores, as dfdx operations.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{Layer, var};
use crate::score::{Binary, Data, Expr, Unary, Var};

/// `let mask = index_mask(.., |..| predicate)`
pub(super) fn emit_mask(cx: &Layer<'_>, mask: &Expr) -> TokenStream {
    let (heads, query, key) = (cx.spec.heads.arg(), cx.query_var(), cx.key_var());
    let function = index_function(mask, host(mask, 0));
    let lengths = lengths(mask);
    quote! {
        #lengths
        let mask: p::Mask<B, #heads, #query, #key, E, D> = p::index_mask(&device, axes, #function)?;
    }
}

/// The lines that turn `scores` into the value of `expr`, a function of the score; `ty` is the type of the tensor.
pub(super) fn emit_map(cx: &Layer<'_>, expr: &Expr, ty: &TokenStream) -> TokenStream {
    let mut lower = Lower {
        cx,
        ty,
        lines: lengths(expr),
        scores_left: occurrences(expr),
    };
    let value = lower.tensor(expr);
    let lines = lower.lines;
    // A parameter alone, or a constant, may have ended under another name.
    let rename = (value != "scores").then(|| quote!(let scores = #value;));
    quote!(#lines #rename)
}

/// `let q_len = ..;` for the lengths that `expr` reads.
fn lengths(expr: &Expr) -> TokenStream {
    let q_len = expr
        .reads(Var::QLen)
        .then(|| quote!(let q_len = axes.1.size() as i64;));
    let kv_len = expr
        .reads(Var::KvLen)
        .then(|| quote!(let kv_len = axes.2.size() as i64;));
    quote!(#q_len #kv_len)
}

fn occurrences(expr: &Expr) -> usize {
    match expr {
        Expr::Score => 1,
        Expr::Unary(_, a) => occurrences(a),
        Expr::Binary(_, a, b) => occurrences(a) + occurrences(b),
        Expr::Select(a, b, c) => occurrences(a) + occurrences(b) + occurrences(c),
        Expr::Param { index, .. } | Expr::Data { index, .. } => index.iter().map(occurrences).sum(),
        Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) => 0,
    }
}

/// `Over { .. }, |b, h, q_idx, kv_idx| body`: the axes that `expr` depends on, and the function over them.
fn index_function(expr: &Expr, body: TokenStream) -> TokenStream {
    let batch = expr.reads(Var::B);
    let head = expr.reads(Var::H);
    let arg = |var: Var| {
        if expr.reads(var) {
            format_ident!("{var}")
        } else {
            format_ident!("_{var}")
        }
    };
    let args = [Var::B, Var::H, Var::QIdx, Var::KvIdx].map(arg);
    quote!(p::Over { batch: #batch, head: #head }, |#(#args),*| #body)
}

/// Lowers an expression of the score to operations on `[batch, heads, query, key]`.
struct Lower<'a> {
    cx: &'a Layer<'a>,
    ty: &'a TokenStream,
    lines: TokenStream,
    scores_left: usize,
}

impl Lower<'_> {
    /// The variable that holds the value of `expr` for every score.
    fn tensor(&mut self, expr: &Expr) -> Ident {
        let value = match expr {
            Expr::Score => return self.score(),
            Expr::Param { name, index } => self.param(name, index, expr),
            Expr::Unary(op, a) if !expr.is_constant() => {
                let (a, function) = (self.tensor(a), unary_function(*op));
                quote!(p::#function(#a)?)
            }
            Expr::Binary(op, a, b) if !expr.is_constant() => self.binary(*op, a, b),
            constant => {
                let function = index_function(constant, host(constant, 0));
                quote!(p::index_floats(&device, axes, #function)?)
            }
        };
        self.line(value)
    }

    /// Binds `value` to the next name; a chain of operations reads as one variable that changes.
    fn line(&mut self, value: TokenStream) -> Ident {
        let name = if self.scores_left == 0 {
            var("scores")
        } else {
            var("bias")
        };
        let ty = self.ty;
        self.lines.extend(quote!(let #name: #ty = #value;));
        name
    }

    /// The incoming score. dfdx cannot differentiate an operation on one tensor twice, so all but the last read copy it.
    fn score(&mut self) -> Ident {
        self.scores_left -= 1;
        if self.scores_left == 0 {
            return var("scores");
        }
        let copy = format_ident!("score_{}", self.scores_left);
        self.lines
            .extend(quote!(let #copy = p::fresh(scores.with_empty_tape())?;));
        copy
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr) -> TokenStream {
        match (
            op,
            is_scalar(a).then(|| host(a, 9)),
            is_scalar(b).then(|| host(b, 9)),
        ) {
            (Binary::Add, None, Some(b)) => self.scalar("add_scalar", a, b),
            (Binary::Add, Some(a), None) => self.scalar("add_scalar", b, a),
            (Binary::Sub, None, Some(b)) => self.scalar("add_scalar", a, quote!(-#b)),
            (Binary::Mul, None, Some(b)) => self.scalar("mul_scalar", a, b),
            (Binary::Mul, Some(a), None) => self.scalar("mul_scalar", b, a),
            (Binary::Div, None, Some(b)) => self.scalar("mul_scalar", a, quote!(1.0 / #b)),
            _ => {
                let function = format_ident!(
                    "{}",
                    match op {
                        Binary::Add => "add",
                        Binary::Sub => "sub",
                        Binary::Mul => "mul",
                        _ => "div",
                    }
                );
                // The operand with the score comes last, so that the others are named beside it.
                let (a, b) = if occurrences(b) == 0 {
                    let b = self.beside(b);
                    (self.tensor(a), b)
                } else {
                    let a = self.beside(a);
                    (a, self.tensor(b))
                };
                quote!(p::#function(#a, #b)?)
            }
        }
    }

    /// An operand under a name of its own.
    fn beside(&mut self, expr: &Expr) -> Ident {
        let value = self.tensor(expr);
        if value != "scores" {
            return value;
        }
        self.lines.extend(quote!(let bias = scores;));
        var("bias")
    }

    fn scalar(&mut self, function: &str, tensor: &Expr, scalar: TokenStream) -> TokenStream {
        let (function, tensor) = (format_ident!("{function}"), self.tensor(tensor));
        quote!(p::#function(#tensor, #scalar)?)
    }

    /// Gathers the elements of a learned tensor, in row-major order.
    fn param(&mut self, name: &str, index: &[Expr], expr: &Expr) -> TokenStream {
        let index = index.iter().map(|index| host(index, 9));
        let function = index_function(expr, flat_index(self.cx, name, index));
        let field = format_ident!("{name}");
        quote!(p::index_param(&layer.#field.weight, axes, #function)?)
    }
}

/// The row-major index, as a `usize`, of an element of a learned tensor.
pub(super) fn flat_index(
    cx: &Layer<'_>,
    name: &str,
    index: impl Iterator<Item = TokenStream>,
) -> TokenStream {
    let dims = cx.graph.param(name);
    let dims = dims
        .map(|param| param.tensors().remove(0).1)
        .unwrap_or_default();
    let flat = index.zip(&dims).reduce(|(flat, _), (index, dim)| {
        let size = host(&Expr::from(dim), 9);
        (quote!(#flat * #size + #index), dim)
    });
    let flat = flat.map_or(quote!(0), |(flat, _)| flat);
    quote!((#flat) as usize)
}

fn unary_function(op: Unary) -> Ident {
    format_ident!(
        "{}",
        match op {
            Unary::Abs => "abs",
            Unary::Exp => "exp",
            Unary::Ln => "ln",
            _ => "tanh",
        }
    )
}

/// The same number for every score.
fn is_scalar(expr: &Expr) -> bool {
    expr.is_constant() && !expr.any(&|expr| matches!(expr, Expr::Var(_) | Expr::Data { .. }))
}

/// `expr` as a Rust expression over `i64`, `f64` and `bool`, in parentheses if it binds less tightly than `level`.
pub(super) fn host(expr: &Expr, level: u8) -> TokenStream {
    match expr {
        // It does not stand in an expression of indices.
        Expr::Score => quote!(0.0),
        // A closure of this name is in scope.
        Expr::Param { name, index } => {
            let (name, index) = (
                format_ident!("{name}"),
                index.iter().map(|index| host(index, 0)),
            );
            quote!(#name(#(#index),*))
        }
        Expr::Var(var) => {
            let name = format_ident!("{var}");
            quote!(#name)
        }
        Expr::Int(size) => match size.value {
            Some(value) => {
                let literal = Literal::u64_unsuffixed(value);
                quote!(#literal)
            }
            None => quote!((#size) as i64).in_parentheses(),
        },
        Expr::Float(real) => quote!(#real),
        Expr::Bool(value) => quote!(#value),
        Expr::Data { data, index } => host_data(*data, index),
        Expr::Unary(op, a) => host_unary(*op, a),
        Expr::Binary(op, a, b) => host_binary(*op, a, b, level),
        Expr::Select(condition, then, otherwise) => {
            let (condition, then, otherwise) =
                (host(condition, 0), host(then, 0), host(otherwise, 0));
            let select = quote!(if #condition { #then } else { #otherwise });
            if level > 0 {
                select.in_parentheses()
            } else {
                select
            }
        }
    }
}

fn host_data(data: Data, index: &[Expr]) -> TokenStream {
    let index = index.iter().map(|index| host(index, 0));
    match data {
        Data::Padding => quote!(padding.attends(#(#index),*)),
        Data::QueryDocument => quote!(document.query_id(#(#index),*)),
        Data::KeyDocument => quote!(document.key_id(#(#index),*)),
    }
}

fn host_unary(op: Unary, a: &Expr) -> TokenStream {
    let a = host(a, 9);
    match op {
        Unary::Not => quote!(!#a),
        Unary::Abs => quote!(#a.abs()),
        Unary::Exp => quote!(#a.exp()),
        Unary::Ln => quote!(#a.ln()),
        Unary::Sqrt => quote!(#a.sqrt()),
        Unary::Tanh => quote!(#a.tanh()),
        Unary::Sigmoid => quote!(p::sigmoid_of(#a)),
        Unary::Floor => quote!(#a.floor()),
        Unary::ToFloat => quote!((#a as f64)),
        Unary::ToInt => quote!((#a as i64)),
    }
}

fn host_binary(op: Binary, a: &Expr, b: &Expr, level: u8) -> TokenStream {
    let Some((symbol, tightness)) = op.symbol() else {
        // Methods could be those of a trait that the user has in scope.
        let (a, b) = (host(a, 0), host(b, 0));
        return if op == Binary::Min {
            quote!(p::min(#a, #b))
        } else {
            quote!(p::max(#a, #b))
        };
    };
    // Comparisons do not chain.
    let left = if matches!(op, Binary::Eq | Binary::Lt | Binary::Le) {
        tightness + 1
    } else {
        tightness
    };
    let (a, b) = (host(a, left), host(b, tightness + 1));
    let symbol: TokenStream = symbol.parse().unwrap_or_default();
    let binary = quote!(#a #symbol #b);
    if tightness < level {
        binary.in_parentheses()
    } else {
        binary
    }
}

trait InParentheses {
    fn in_parentheses(self) -> TokenStream;
}

impl InParentheses for TokenStream {
    fn in_parentheses(self) -> TokenStream {
        quote!((#self))
    }
}
