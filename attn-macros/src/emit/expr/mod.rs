//! Expressions as Rust: on indices, as closures that the host evaluates; on scores, as dfdx operations or over vectors; in elementwise
//! loops, over vectors.

mod host;
mod tensor;
mod vector;

pub(super) use host::flat_index;
pub(crate) use host::host;
pub(crate) use tensor::emit_elementwise;
pub(super) use tensor::emit_map;
pub(super) use vector::vectors;
pub(crate) use vector::{loop_values, slope_values};

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::Layer;
use crate::score::{Expr, Var};

/// `let mask = index_mask(.., |..| predicate)`
pub(super) fn emit_mask(cx: &Layer<'_>, mask: &Expr) -> TokenStream {
    let heads = cx.spec.heads.arg();
    let query = cx.query_var();
    let key = cx.key_var();
    let function = index_function(&[mask], host(mask, 0));
    let lengths = lengths(mask);
    quote! {
        #lengths
        let mask: p::ScoreMask<B, #heads, #query, #key, E, D> = p::index_mask(&device, axes, #function)?;
    }
}

/// `let q_len = ..;` for the lengths that `expr` reads.
fn lengths(expr: &Expr) -> TokenStream {
    let q_len = expr
        .reads(Var::QLen)
        .then(|| quote!(let q_len = p::Dim::size(&axes.1) as i64;));
    let kv_len = expr
        .reads(Var::KvLen)
        .then(|| quote!(let kv_len = p::Dim::size(&axes.2) as i64;));
    quote!(#q_len #kv_len)
}

/// `Over { .. }, |b, h, q_idx, kv_idx| body`: the axes that the parts of `body` depend on, and the function over them.
fn index_function(parts: &[&Expr], body: TokenStream) -> TokenStream {
    let reads = |var: Var| parts.iter().any(|part| part.reads(var));
    let batch = reads(Var::B);
    let head = reads(Var::H);
    let arg = |var: Var| {
        let hidden = if reads(var) { "" } else { "_" };
        format_ident!("{hidden}{var}")
    };
    let args = [Var::B, Var::H, Var::QIdx, Var::KvIdx].map(arg);
    quote!(p::DependsOn { batch: #batch, head: #head }, |#(#args),*| #body)
}
