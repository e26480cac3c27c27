//! Expressions as the slice kernels take them: masks on one place and on ranges of places, scores on vectors, biases as
//! functions of a place.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::Layer;
use super::expr::{flat_index, host};
use super::input::data_name;
use crate::graph::MaskData;
use crate::score::diff::{Wrt, diff};
use crate::score::split::{BIAS, param_reads};
use crate::score::{Binary, Data, Expr, Type, Unary, Var};

/// ```text
/// struct Attends { padding: p::PaddingData, .. }
///
/// impl p::Attends for Attends {
///     fn attends(..) -> bool { .. kv_idx <= q_idx }
///     fn coverage(..) -> p::Coverage { .. kv_idx.at_most(q_idx) .. }
/// }
/// ```
pub(super) fn emit_mask(cx: &Layer<'_>, mask: &Expr) -> TokenStream {
    let (data, types): (Vec<_>, Vec<_>) = data_fields(cx).into_iter().unzip();
    let lengths = lengths(mask);
    let (predicate, truth) = (host(mask, 0), ranges(mask));
    quote! {
        /// Which keys a query attends to.
        struct Attends {
            #(#lengths: i64,)*
            #(#data: #types,)*
        }

        #[allow(unused_variables)]
        impl p::Attends for Attends {
            #[inline(always)]
            fn attends(&self, b: usize, h: usize, q: usize, k: usize) -> bool {
                let [b, h, q_idx, kv_idx] = [b as i64, h as i64, q as i64, k as i64];
                let Attends { #(#lengths,)* #(#data,)* } = self;
                #(let #lengths = *#lengths;)*
                #predicate
            }

            fn coverage(&self, b: usize, h: usize, q: p::Range<usize>, k: p::Range<usize>) -> p::Coverage {
                let [b, h] = [b, h].map(|index| p::Interval::exactly(index as i64));
                let [q_idx, kv_idx] = [q, k].map(|range| p::Interval::of(&range));
                let Attends { #(#lengths,)* #(#data,)* } = self;
                #(let #lengths = p::Interval::exactly(*#lengths);)*
                p::Truth::coverage(#truth)
            }
        }
    }
}

/// `Attends { q_len: .., padding }`
pub(super) fn emit_mask_value(cx: &Layer<'_>, mask: &Expr) -> TokenStream {
    let data = data_fields(cx).into_iter().map(|(data, _)| data);
    let lengths = lengths(mask).into_iter().map(|length| {
        let size = if length == "q_len" { "query" } else { "key" };
        let size = format_ident!("{size}");
        quote!(#length: sizes.#size as i64)
    });
    quote!(Attends { #(#lengths,)* #(#data,)* })
}

fn data_fields(cx: &Layer<'_>) -> Vec<(Ident, TokenStream)> {
    let field = |data: &MaskData| {
        let ty = match data {
            MaskData::Padding => quote!(p::PaddingData),
            MaskData::Document => quote!(p::DocumentData),
        };
        (data_name(*data), ty)
    };
    cx.graph.data.iter().map(field).collect()
}

/// The lengths that `expr` reads.
fn lengths(expr: &Expr) -> Vec<Ident> {
    let read = [Var::QLen, Var::KvLen]
        .into_iter()
        .filter(|var| expr.reads(*var));
    read.map(|var| format_ident!("{var}")).collect()
}

/// A condition or an integer as Rust over `Truth` and `Interval`.
fn ranges(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Var(var) => {
            let name = format_ident!("{var}");
            quote!(#name)
        }
        Expr::Int(_) => {
            let value = host(expr, 0);
            quote!(p::Interval::exactly(#value))
        }
        Expr::Bool(value) => quote!(p::Truth::from(#value)),
        Expr::Data { data, index } => {
            let index = index.iter().map(ranges);
            match data {
                Data::Padding => quote!(padding.attends_all(#(#index),*)),
                Data::QueryDocument => quote!(document.query_ids(#(#index),*)),
                Data::KeyDocument => quote!(document.key_ids(#(#index),*)),
            }
        }
        Expr::Unary(Unary::Not, a) => {
            let a = ranges(a);
            quote!((!#a))
        }
        Expr::Unary(Unary::Abs, a) if is_integer(a) => {
            let a = ranges(a);
            quote!(p::Interval::abs(#a))
        }
        Expr::Binary(op, a, b) if is_integer(a) == is_integer(b) => ranges_binary(*op, a, b),
        Expr::Select(condition, then, otherwise) if is_integer(then) => {
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| ranges(part));
            quote!(p::Truth::select(#condition, #then, #otherwise))
        }
        other if is_integer(other) => quote!(p::Interval::ANY),
        // Of floats nothing is known.
        _ => quote!(p::Truth::Unknown),
    }
}

fn ranges_binary(op: Binary, a: &Expr, b: &Expr) -> TokenStream {
    let compares_floats = matches!(op, Binary::Eq | Binary::Lt | Binary::Le) && !is_integer(a);
    if compares_floats {
        return quote!(p::Truth::Unknown);
    }
    let (a, b) = (ranges(a), ranges(b));
    match op {
        Binary::Add => quote!((#a + #b)),
        Binary::Sub => quote!((#a - #b)),
        Binary::Mul => quote!((#a * #b)),
        Binary::Div => quote!((#a / #b)),
        Binary::Rem => quote!((#a % #b)),
        Binary::Min => quote!(p::Interval::min(#a, #b)),
        Binary::Max => quote!(p::Interval::max(#a, #b)),
        Binary::Pow => quote!(p::Interval::ANY),
        Binary::Eq => quote!(p::Interval::equals(#a, #b)),
        Binary::Lt => quote!(p::Interval::less(#a, #b)),
        Binary::Le => quote!(p::Interval::at_most(#a, #b)),
        Binary::And => quote!((#a & #b)),
        Binary::Or => quote!((#a | #b)),
    }
}

fn is_integer(expr: &Expr) -> bool {
    expr.ty() == Type::Int
}

/// ```text
/// struct Modified;
///
/// impl<E: p::Element> p::Modify<E> for Modified {
///     fn value<V: p::Vector<Element = E>>(&self, score: V, bias: V) -> V { .. }
///     fn derivative<V: ..>(&self, score: V, bias: V) -> V { .. }
///     fn bias_derivative<V: ..>(&self, score: V, bias: V) -> V { .. }
/// }
/// ```
pub(super) fn emit_score(expr: &Expr) -> TokenStream {
    let functions = [
        ("value", expr.clone()),
        ("derivative", diff(expr, Wrt::Score)),
        ("bias_derivative", diff(expr, Wrt::Param(BIAS))),
    ];
    let functions = functions.map(|(name, expr)| {
        let (name, value) = (format_ident!("{name}"), vector(&expr));
        quote! {
            #[inline(always)]
            fn #name<V: p::Vector<Element = E>>(&self, score: V, bias: V) -> V {
                #value
            }
        }
    });
    quote! {
        /// What becomes of a score, and its derivatives.
        struct Modified;

        #[allow(unused_variables)]
        impl<E: p::Element> p::Modify<E> for Modified {
            #(#functions)*
        }
    }
}

/// A float as Rust over vectors.
fn vector(expr: &Expr) -> TokenStream {
    let is_number = !expr.any(&|expr| matches!(expr, Expr::Score | Expr::Param { .. }));
    if is_number {
        let value = host(expr, 0);
        return quote!(p::splat::<E, V>(#value));
    }
    match expr {
        Expr::Score => quote!(score),
        Expr::Unary(op, a) => {
            let a = vector(a);
            match op {
                Unary::Abs => quote!(p::Vector::abs(#a)),
                Unary::Exp => quote!(p::math::exp(#a)),
                Unary::Ln => quote!(p::math::ln(#a)),
                Unary::Sqrt => quote!(p::Vector::sqrt(#a)),
                Unary::Sigmoid => quote!(p::math::sigmoid(#a)),
                Unary::Floor => quote!(p::math::floor(#a)),
                _ => quote!(p::math::tanh(#a)),
            }
        }
        Expr::Binary(op, a, b) => {
            let (a, b) = (vector(a), vector(b));
            match op {
                Binary::Add => quote!((#a + #b)),
                Binary::Sub => quote!((#a - #b)),
                Binary::Mul => quote!((#a * #b)),
                Binary::Min => quote!(p::Vector::min(#a, #b)),
                Binary::Max => quote!(p::Vector::max(#a, #b)),
                Binary::Pow => quote!(p::math::pow(#a, #b)),
                Binary::Eq => quote!(p::Vector::eq(#a, #b)),
                Binary::Lt => quote!(p::Vector::lt(#a, #b)),
                Binary::Le => quote!(p::Vector::le(#a, #b)),
                Binary::And => quote!((#a & #b)),
                Binary::Or => quote!((#a | #b)),
                Binary::Div | Binary::Rem => quote!((#a / #b)),
            }
        }
        Expr::Select(condition, then, otherwise) => {
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| vector(part));
            quote!(V::select(#condition, #then, #otherwise))
        }
        // The only parameter of a score is its bias.
        _ => quote!(bias),
    }
}

/// `|h, q_idx, kv_idx| ..`: the bias of a head and a distance.
pub(super) fn emit_bias(cx: &Layer<'_>, bias: &Expr) -> TokenStream {
    let value = host(bias, 0);
    let [h, q_idx, kv_idx] = arguments(bias);
    let reads = param_reads(bias).into_iter().map(|(name, index)| {
        let (field, args) = (
            format_ident!("{name}"),
            (0..index.len()).map(|i| format_ident!("i{i}")),
        );
        let args: Vec<_> = args.collect();
        let index = flat_index(cx, name, args.iter().map(|arg| quote!(#arg)));
        quote!(let #field = |#(#args: i64),*| p::number(weights.#field.values()[#index]);)
    });
    quote! {{
        #(#reads)*
        move |#h, #q_idx, #kv_idx| #value
    }}
}

/// For every learned tensor that a bias reads: its name, and `|h, q_idx, kv_idx| (index, factor)`, the element of it and the
/// derivative with respect to that.
pub(super) fn emit_bias_derivatives<'e>(
    cx: &Layer<'_>,
    bias: &'e Expr,
) -> Vec<(&'e str, TokenStream)> {
    let [h, q_idx, kv_idx] = arguments(bias);
    let derivative = |(name, index): (&'e str, &[Expr])| {
        let index = flat_index(cx, name, index.iter().map(|index| host(index, 9)));
        let factor = host(&diff(bias, Wrt::Param(name)), 0);
        (name, quote!(|#h, #q_idx, #kv_idx| (#index, #factor)))
    };
    param_reads(bias).into_iter().map(derivative).collect()
}

fn arguments(expr: &Expr) -> [Ident; 3] {
    [Var::H, Var::QIdx, Var::KvIdx].map(|var| {
        let hidden = if expr.reads(var) { "" } else { "_" };
        format_ident!("{hidden}{var}")
    })
}
