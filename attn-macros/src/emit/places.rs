//! Masks as the slice kernels take them: at one place, and on zones of places.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::Layer;
use super::expr::host;
use super::input::{data_name, declared_name, read_type};
use crate::graph::CallData;
use crate::score::{Binary, Data, Expr, Type, Unary, Var};

/// ```text
/// struct Attends { padding: p::PaddingData, .. }
///
/// impl p::Mask for Attends {
///     fn attends(..) -> bool { .. kv_idx <= q_idx }
///     fn coverage(..) -> p::Coverage { p::Zone::of(&q, &k).coverage(&|at| .. p::Affine::at_most(kv_idx, q_idx)) }
/// }
/// ```
pub(super) fn emit_mask(cx: &Layer<'_>, mask: &Expr) -> TokenStream {
    let read = data_of(cx, mask);
    let (data, types): (Vec<_>, Vec<_>) = read
        .iter()
        .map(|data| (data_name(data), read_type(data)))
        .unzip();
    let (lengths, [ty, generics]) = (lengths(mask), mask_type(cx, mask));
    let predicate = host(mask, 0);
    let truth = on_zone(mask);
    quote! {
        /// The mask: the keys that each query attends to.
        struct Attends #generics {
            #(#lengths: i64,)*
            #(#data: #types,)*
        }

        #[allow(unused_variables)]
        impl #generics p::Mask for #ty {
            #[inline(always)]
            fn attends(&self, b: usize, h: usize, q: usize, k: usize) -> bool {
                let [b, h, q_idx, kv_idx] = [b as i64, h as i64, q as i64, k as i64];
                let Attends { #(#lengths,)* #(#data,)* } = self;
                #(let #lengths = *#lengths;)*
                #predicate
            }

            fn coverage(&self, b: usize, h: usize, q: p::Range<usize>, k: p::Range<usize>) -> p::Coverage {
                let Attends { #(#lengths,)* #(#data,)* } = self;
                p::Zone::of(&q, &k).coverage(&|at| {
                    let b = at.number(b as i64);
                    let h = at.number(h as i64);
                    let q_idx = at.q_idx();
                    let kv_idx = at.kv_idx();
                    #(let #lengths = at.number(*#lengths);)*
                    #truth
                })
            }
        }
    }
}

/// The type of the mask, and its generics: it is made of the layer's elements where it reads floats.
pub(super) fn mask_type(cx: &Layer<'_>, mask: &Expr) -> [TokenStream; 2] {
    let reads_floats = data_of(cx, mask)
        .iter()
        .any(|data| matches!(data, CallData::Declared(declared) if declared.ty == Type::Float));
    if reads_floats {
        [quote!(Attends<E>), quote!(<E: p::Element>)]
    } else {
        [quote!(Attends), TokenStream::new()]
    }
}

/// `Attends { q_len: .., padding }`, for lengths that are `query` and `key`. A function of the score may read what the body
/// declares as well: tables are shared.
pub(super) fn emit_mask_value(
    cx: &Layer<'_>,
    mask: &Expr,
    query: &TokenStream,
    key: &TokenStream,
) -> TokenStream {
    let data = data_of(cx, mask).into_iter().map(|data| {
        let name = data_name(data);
        match data {
            CallData::Declared(_) => quote!(#name: p::Clone::clone(&#name)),
            _ => quote!(#name),
        }
    });
    let lengths = lengths(mask).into_iter().map(|length| {
        let size = if length == "q_len" { query } else { key };
        quote!(#length: #size as i64)
    });
    quote!(Attends { #(#lengths,)* #(#data,)* })
}

/// The data that `mask` reads.
fn data_of<'a>(cx: &'a Layer<'_>, mask: &Expr) -> Vec<&'a CallData> {
    cx.graph
        .data
        .iter()
        .filter(|data| data.is_read(mask))
        .collect()
}

/// The lengths that `expr` reads.
fn lengths(expr: &Expr) -> Vec<Ident> {
    let read = [Var::QLen, Var::KvLen]
        .into_iter()
        .filter(|var| expr.reads(*var));
    read.map(|var| format_ident!("{var}")).collect()
}

/// A condition or an integer as Rust over `Truth` and `Affine`, on the zone `at`.
pub(super) fn on_zone(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Var(var) => {
            let name = format_ident!("{var}");
            quote!(#name)
        }
        Expr::Int(_) => {
            let value = host(expr, 0);
            quote!(at.number(#value))
        }
        Expr::Bool(value) => quote!(p::Truth::from(#value)),
        Expr::Data { data, index } if data.ty() != Type::Float => {
            let index = index.iter().map(on_zone);
            match data {
                Data::Padding => quote!(padding.attends_all(#(#index),*)),
                Data::QueryDocument => quote!(document.query_ids(#(#index),*)),
                Data::KeyDocument => quote!(document.key_ids(#(#index),*)),
                Data::Declared { name, ty } => {
                    let table = declared_name(name);
                    match ty {
                        Type::Bool => quote!(#table.marks(at, [#(#index),*])),
                        _ => quote!(#table.ids(at, [#(#index),*])),
                    }
                }
            }
        }
        Expr::Unary(Unary::Not, a) => {
            let a = on_zone(a);
            quote!((!#a))
        }
        Expr::Unary(Unary::Abs, a) if a.ty() == Type::Int => {
            let a = on_zone(a);
            quote!(p::Affine::abs(#a))
        }
        Expr::Binary(op, a, b) if a.ty() != Type::Float => binary_on_zone(*op, a, b),
        Expr::Select(condition, then, otherwise) if then.ty() != Type::Float => {
            let choose = match then.ty() {
                Type::Int => quote!(select),
                _ => quote!(choose),
            };
            let [condition, then, otherwise] =
                [condition, then, otherwise].map(|part| on_zone(part));
            quote!(p::Truth::#choose(#condition, #then, #otherwise))
        }
        other if other.ty() == Type::Int => quote!(at.within(p::Interval::ANY)),
        // Floats are not evaluated.
        _ => quote!(p::Truth::Unknown(None)),
    }
}

/// An operation of two integers, or of two conditions.
fn binary_on_zone(op: Binary, a: &Expr, b: &Expr) -> TokenStream {
    let a = on_zone(a);
    let b = on_zone(b);
    match op {
        Binary::Add => quote!((#a + #b)),
        Binary::Sub => quote!((#a - #b)),
        Binary::Mul => quote!((#a * #b)),
        Binary::Div => quote!((#a / #b)),
        Binary::Rem => quote!((#a % #b)),
        Binary::Min => quote!(p::Affine::min(#a, #b)),
        Binary::Max => quote!(p::Affine::max(#a, #b)),
        Binary::Pow => quote!(at.within(p::Interval::ANY)),
        Binary::Eq => quote!(p::Affine::equals(#a, #b)),
        Binary::Lt => quote!(p::Affine::less(#a, #b)),
        Binary::Le => quote!(p::Affine::at_most(#a, #b)),
        Binary::And => quote!((#a & #b)),
        Binary::Or => quote!((#a | #b)),
    }
}
