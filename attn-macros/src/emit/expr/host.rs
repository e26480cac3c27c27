//! Expressions of indices, as Rust over `i64`, `f64` and `bool`.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use crate::emit::Layer;
use crate::emit::input::declared_name;
use crate::score::{Binary, Data, Expr, Type, Unary};
use crate::spec::Dim;

/// `expr` as a Rust expression over `i64`, `f64` and `bool`, in parentheses if it binds less tightly than `level`.
pub(crate) fn host(expr: &Expr, level: u8) -> TokenStream {
    match expr {
        // It does not stand in an expression of indices.
        Expr::Operand(_) => quote!(0.0),
        // A closure of this name is in scope: no name of the emitted code.
        Expr::Param { name, index } => {
            let name = format_ident!("param_{name}");
            let index = index.iter().map(|index| host(index, 0));
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
        Expr::Data { data, index } => host_data(data, index),
        Expr::Unary(op, a) => host_unary(*op, a),
        Expr::Binary(op, a, b) => host_binary(*op, a, b, level),
        Expr::Select(condition, then, otherwise) => {
            let condition = host(condition, 0);
            let then = host(then, 0);
            let otherwise = host(otherwise, 0);
            let select = quote!(if #condition { #then } else { #otherwise });
            if level > 0 {
                select.in_parentheses()
            } else {
                select
            }
        }
    }
}

fn host_data(data: &Data, index: &[Expr]) -> TokenStream {
    let index = index.iter().map(|index| host(index, 0));
    match data {
        Data::Padding => quote!(padding.attends(#(#index),*)),
        Data::QueryDocument => quote!(document.query_id(#(#index),*)),
        Data::KeyDocument => quote!(document.key_id(#(#index),*)),
        Data::Declared { name, ty } => {
            let table = declared_name(name);
            let element = match ty {
                Type::Int => format_ident!("id"),
                Type::Bool => format_ident!("mark"),
                Type::Float => format_ident!("float"),
            };
            quote!(#table.#element([#(#index),*]))
        }
    }
}

fn host_unary(op: Unary, a: &Expr) -> TokenStream {
    // A literal has no methods until its type is known, so functions are named with theirs.
    let is_integer = a.ty() == Type::Int;
    let is_operator = matches!(op, Unary::Not | Unary::ToFloat);
    let a = host(a, if is_operator { 9 } else { 0 });
    match op {
        Unary::Not => quote!(!#a),
        Unary::Abs if is_integer => quote!(i64::abs(#a)),
        Unary::Abs => quote!(f64::abs(#a)),
        Unary::Exp => quote!(f64::exp(#a)),
        Unary::Ln => quote!(f64::ln(#a)),
        Unary::Sqrt => quote!(f64::sqrt(#a)),
        Unary::Sin => quote!(f64::sin(#a)),
        Unary::Cos => quote!(f64::cos(#a)),
        Unary::Tanh => quote!(f64::tanh(#a)),
        Unary::Sigmoid => quote!(p::sigmoid_of(#a)),
        Unary::Floor => quote!(f64::floor(#a)),
        // They stand in loops of a model alone.
        Unary::Activation(_) | Unary::Slope(_) => a,
        Unary::ToFloat => quote!((#a as f64)),
        Unary::ToInt => quote!(p::integer_of(#a)),
    }
}

fn host_binary(op: Binary, a: &Expr, b: &Expr, level: u8) -> TokenStream {
    let Some((symbol, tightness)) = op.symbol() else {
        // Methods could be those of a trait that the user has in scope.
        let a = host(a, 0);
        let b = host(b, 0);
        return match op {
            Binary::Min => quote!(p::min(#a, #b)),
            Binary::Max => quote!(p::max(#a, #b)),
            _ => quote!(f64::powf(#a, #b)),
        };
    };
    // Comparisons do not chain.
    let left = if matches!(op, Binary::Eq | Binary::Lt | Binary::Le) {
        tightness + 1
    } else {
        tightness
    };
    let a = host(a, left);
    let b = host(b, tightness + 1);
    let symbol: TokenStream = symbol.parse().unwrap_or_default();
    let binary = quote!(#a #symbol #b);
    if tightness < level {
        binary.in_parentheses()
    } else {
        binary
    }
}

/// The row-major index, as a `usize`, of an element of a learned tensor or of a value of the model. `batch`, `query` and `key` are the
/// lengths of these axes.
pub(in crate::emit) fn flat_index(
    cx: &Layer<'_>,
    name: &str,
    index: impl Iterator<Item = TokenStream>,
) -> TokenStream {
    let dims = cx.graph.dims(name);
    let flat = index.zip(&dims).reduce(|(flat, _), (index, dim)| {
        let size = match dim {
            Dim::Size(size) => host(&Expr::from(size), 9),
            Dim::Batch => quote!(batch as i64),
            Dim::Query => quote!(query as i64),
            Dim::Key => quote!(key as i64),
        };
        (quote!((#flat) * #size + #index), dim)
    });
    let flat = flat.map_or(quote!(0), |(flat, _)| flat);
    quote!((#flat) as usize)
}

trait InParentheses {
    fn in_parentheses(self) -> TokenStream;
}

impl InParentheses for TokenStream {
    fn in_parentheses(self) -> TokenStream {
        quote!((#self))
    }
}
