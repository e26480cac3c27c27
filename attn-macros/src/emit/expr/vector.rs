//! Expressions over vectors, as the kernels evaluate them: functions of a score, and elementwise loops.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};

use super::host;
use crate::emit::var;
use crate::score::share::{Shared, is_part, part_name};
use crate::score::{Binary, Expr, Type, Unary};

/// The names of what an expression reads.
#[derive(Clone, Copy)]
enum Names {
    /// `score`, and `bias_terms[0]` for the parameter of a bias term.
    Score,
    /// `x0`, and the variable `by` for a parameter.
    Loop,
}

/// A function of the score as Rust over vectors.
pub(in crate::emit) fn vectors(expr: &Expr) -> TokenStream {
    let [lines, rest] = with_parts([expr], Names::Score);
    quote!(#lines #rest)
}

/// The values of a loop as Rust over vectors: an array.
pub(crate) fn loop_values(values: &[Expr]) -> TokenStream {
    let [lines, rests] = with_parts(values, Names::Loop);
    quote!(#lines [#rests])
}

/// The variables of what stands in the expressions more than once, and the expressions, with commas between them.
fn with_parts<'e>(exprs: impl IntoIterator<Item = &'e Expr>, names: Names) -> [TokenStream; 2] {
    let Shared { parts, rests } = Shared::of(exprs);
    let lines = parts.iter().enumerate().map(|(index, part)| {
        let name = var(&part_name(index));
        let value = vector(part, names);
        quote!(let #name = #value;)
    });
    let rests = rests.iter().map(|rest| vector(rest, names));
    [lines.collect(), quote!(#(#rests),*)]
}

/// A float or a condition as Rust over vectors.
fn vector(expr: &Expr, names: Names) -> TokenStream {
    match expr {
        _ if is_number(expr) => {
            let value = host(expr, 0);
            quote!(p::splat::<E, V>(#value))
        }
        Expr::Param { name, .. } if is_part(name) => var(name).into_token_stream(),
        Expr::Param { name, .. } => match names {
            Names::Score => {
                let index = name.trim_start_matches(|c: char| !c.is_ascii_digit());
                let index: TokenStream = index.parse().unwrap_or_default();
                quote!(bias_terms[#index])
            }
            Names::Loop => {
                let number = format_ident!("{name}");
                quote!(p::splat::<E, V>(#number))
            }
        },
        Expr::Unary(op, a) => vector_unary(*op, &vector(a, names)),
        Expr::Binary(op, a, b) => vector_binary(*op, a, b, names),
        Expr::Select(condition, then, otherwise) => {
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| vector(part, names));
            quote!(V::select(#condition, #then, #otherwise))
        }
        Expr::Operand(index) => match names {
            Names::Score => quote!(score),
            Names::Loop => format_ident!("x{index}").into_token_stream(),
        },
        // Integers and conditions of places are in bias terms.
        Expr::Var(_) | Expr::Int(_) | Expr::Float(_) | Expr::Bool(_) | Expr::Data { .. } => {
            host(expr, 0)
        }
    }
}

/// The same number in every lane.
fn is_number(expr: &Expr) -> bool {
    let reads = expr.any(&|expr| matches!(expr, Expr::Operand(_) | Expr::Param { .. }));
    !reads && expr.ty() == Type::Float
}

fn vector_unary(op: Unary, a: &TokenStream) -> TokenStream {
    match op {
        Unary::Not => quote!((!#a)),
        Unary::Abs => quote!(p::Vector::abs(#a)),
        Unary::Sqrt => quote!(p::Vector::sqrt(#a)),
        Unary::Exp => quote!(p::math::exp(#a)),
        Unary::Ln => quote!(p::math::ln(#a)),
        Unary::Sin => quote!(p::math::sin(#a)),
        Unary::Cos => quote!(p::math::cos(#a)),
        Unary::Tanh => quote!(p::math::tanh(#a)),
        Unary::Sigmoid => quote!(p::math::sigmoid(#a)),
        Unary::Floor => quote!(p::math::floor(#a)),
        Unary::Activation(activation) => {
            let activation = format_ident!("{}", activation.ty());
            quote!(p::activations::value(p::activations::#activation, #a))
        }
        Unary::Slope(activation) => {
            let activation = format_ident!("{}", activation.ty());
            quote!(p::activations::slope(p::activations::#activation, #a))
        }
        // Integers are in bias terms, and those are floats.
        Unary::ToFloat | Unary::ToInt => quote!(#a),
    }
}

fn vector_binary(op: Binary, a: &Expr, b: &Expr, names: Names) -> TokenStream {
    if op == Binary::Pow {
        // The exponent is a number.
        let a = vector(a, names);
        let exponent = host(b, 0);
        return quote!(p::math::pow(#a, <E as p::Real>::of_f64(#exponent)));
    }
    if op == Binary::Div && is_number(b) {
        // A division takes as long as ten products.
        let a = vector(a, names);
        let divisor = host(b, 9);
        return quote!((#a * p::splat::<E, V>(1.0 / #divisor)));
    }
    let a = vector(a, names);
    let b = vector(b, names);
    match op {
        Binary::Add => quote!((#a + #b)),
        Binary::Sub => quote!((#a - #b)),
        Binary::Mul => quote!((#a * #b)),
        Binary::Div => quote!((#a / #b)),
        Binary::Rem => quote!(p::math::rem(#a, #b)),
        Binary::Min => quote!(p::Vector::min(#a, #b)),
        Binary::Max => quote!(p::Vector::max(#a, #b)),
        Binary::Eq => quote!(p::Vector::eq(#a, #b)),
        Binary::Lt => quote!(p::Vector::lt(#a, #b)),
        Binary::Le => quote!(p::Vector::le(#a, #b)),
        Binary::And => quote!((#a & #b)),
        Binary::Or | Binary::Pow => quote!((#a | #b)),
    }
}
