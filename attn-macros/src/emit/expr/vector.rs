//! Expressions over vectors, as the kernels evaluate them: functions of a score, and elementwise loops.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};

use super::host;
use crate::emit::var;
use crate::score::share::{Shared, is_part, part_name};
use crate::score::{Binary, Expr, Type, Unary};

/// The names of what an expression reads.
#[derive(Clone, Copy)]
enum Names<'a> {
    /// `score`, and `bias_terms[0]` for the parameter of a bias term.
    Score,
    /// `x0`, and the variable `by` for a parameter. Quotients by what depends on these operands alone are products.
    Loop(&'a [Expr]),
}

/// A function of the score as Rust over vectors.
pub(in crate::emit) fn vectors(expr: &Expr) -> TokenStream {
    let [lines, rest] = with_parts([expr], Names::Score);
    quote!(#lines #rest)
}

/// The values of a loop as Rust over vectors: an array.
pub(crate) fn loop_values(values: &[Expr]) -> TokenStream {
    let [lines, rests] = with_parts(values, Names::Loop(&[]));
    quote!(#lines [#rests])
}

/// The same of a derivative. Quotients by what depends on these operands alone, which are numbers of rows, are products with what is computed
/// once in a row.
pub(crate) fn slope_values(values: &[Expr], numbers: &[usize]) -> TokenStream {
    let numbers: Vec<_> = numbers.iter().copied().map(Expr::Operand).collect();
    let [lines, rests] = with_parts(values, Names::Loop(&numbers));
    quote!(#lines [#rests])
}

/// The variables of what stands in the expressions more than once, and the expressions, with commas between them.
fn with_parts<'e>(exprs: impl IntoIterator<Item = &'e Expr>, names: Names<'_>) -> [TokenStream; 2] {
    let Shared { parts, rests } = Shared::of(exprs);
    let mut numbers = match names {
        Names::Score => Vec::new(),
        Names::Loop(numbers) => numbers.to_vec(),
    };
    // Parts of numbers of rows are such numbers, too.
    for (index, part) in parts.iter().enumerate() {
        if depends_on(part, &numbers) {
            let (name, index) = (part_name(index), Vec::new());
            numbers.push(Expr::Param { name, index });
        }
    }
    let names = match names {
        Names::Score => Names::Score,
        Names::Loop(_) => Names::Loop(&numbers),
    };
    let lines = parts.iter().enumerate().map(|(index, part)| {
        let name = var(&part_name(index));
        let value = without_parentheses(vector(part, names));
        quote!(let #name = #value;)
    });
    let rests = rests.iter().map(|rest| vector(rest, names));
    [lines.collect(), quote!(#(#rests),*)]
}

/// `a + b` for `(a + b)`.
fn without_parentheses(value: TokenStream) -> TokenStream {
    let mut tokens = value.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::Parenthesis => {
            group.stream()
        }
        _ => value,
    }
}

/// Whether an expression reads some of these operands and parts, and no others.
fn depends_on(expr: &Expr, numbers: &[Expr]) -> bool {
    let is_read = |expr: &Expr| match expr {
        Expr::Param { name, .. } => is_part(name),
        expr => matches!(expr, Expr::Operand(_)),
    };
    let is_known = |expr: &Expr| is_read(expr) && numbers.contains(expr);
    let is_other = |expr: &Expr| is_read(expr) && !numbers.contains(expr);
    expr.any(&is_known) && !expr.any(&is_other)
}

/// A float or a condition as Rust over vectors.
fn vector(expr: &Expr, names: Names<'_>) -> TokenStream {
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
            Names::Loop(_) => {
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
            Names::Loop(_) => format_ident!("x{index}").into_token_stream(),
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

fn vector_binary(op: Binary, a: &Expr, b: &Expr, names: Names<'_>) -> TokenStream {
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
    let is_of_rows = |expr| matches!(names, Names::Loop(numbers) if depends_on(expr, numbers));
    if op == Binary::Div && is_of_rows(b) && !is_of_rows(a) && !is_number(a) {
        let [a, b] = [a, b].map(|expr| vector(expr, names));
        return quote!(p::math::quotient(#a, #b));
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
