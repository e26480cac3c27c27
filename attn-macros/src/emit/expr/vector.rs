//! Expressions over vectors of scores, as the kernels evaluate them.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};

use super::host;
use crate::emit::var;
use crate::score::share::{Shared, is_part, part_name};
use crate::score::{Binary, Expr, Type, Unary};

/// A float as Rust over vectors, after the variables of its repeated parts.
pub(in crate::emit) fn vectors(expr: &Expr) -> TokenStream {
    let Shared { parts, rest } = Shared::of(expr);
    let lines = parts.iter().enumerate().map(|(index, part)| {
        let name = var(&part_name(index));
        let value = vector(part);
        quote!(let #name = #value;)
    });
    let (lines, rest): (TokenStream, _) = (lines.collect(), vector(&rest));
    quote!(#lines #rest)
}

/// A float or a condition as Rust over vectors.
fn vector(expr: &Expr) -> TokenStream {
    match expr {
        _ if is_number(expr) => {
            let value = host(expr, 0);
            quote!(p::splat::<E, V>(#value))
        }
        Expr::Param { name, .. } if is_part(name) => var(name).into_token_stream(),
        Expr::Param { name, .. } => {
            let index = name.trim_start_matches(|c: char| !c.is_ascii_digit());
            let index: TokenStream = index.parse().unwrap_or_default();
            quote!(bias_terms[#index])
        }
        Expr::Unary(op, a) => vector_unary(*op, &vector(a)),
        Expr::Binary(op, a, b) => vector_binary(*op, a, b),
        Expr::Select(condition, then, otherwise) => {
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| vector(part));
            quote!(V::select(#condition, #then, #otherwise))
        }
        _ => quote!(score),
    }
}

/// The same number in every lane.
fn is_number(expr: &Expr) -> bool {
    let reads = expr.any(&|expr| matches!(expr, Expr::Score | Expr::Param { .. }));
    !reads && expr.ty() == Type::Float
}

fn vector_unary(op: Unary, a: &TokenStream) -> TokenStream {
    match op {
        Unary::Not => quote!((!#a)),
        Unary::Abs => quote!(p::Vector::abs(#a)),
        Unary::Sqrt => quote!(p::Vector::sqrt(#a)),
        Unary::Exp => quote!(p::math::exp(#a)),
        Unary::Ln => quote!(p::math::ln(#a)),
        Unary::Tanh => quote!(p::math::tanh(#a)),
        Unary::Sigmoid => quote!(p::math::sigmoid(#a)),
        Unary::Floor => quote!(p::math::floor(#a)),
        // Integers are in bias terms, and those are floats.
        Unary::ToFloat | Unary::ToInt => quote!(#a),
    }
}

fn vector_binary(op: Binary, a: &Expr, b: &Expr) -> TokenStream {
    if op == Binary::Pow {
        // The exponent is a number.
        let a = vector(a);
        let exponent = host(b, 0);
        return quote!(p::math::pow(#a, <E as p::Element>::of(#exponent)));
    }
    if op == Binary::Div && is_number(b) {
        // A division takes as long as ten products.
        let a = vector(a);
        let divisor = host(b, 9);
        return quote!((#a * p::splat::<E, V>(1.0 / #divisor)));
    }
    let a = vector(a);
    let b = vector(b);
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
