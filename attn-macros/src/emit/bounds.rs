//! Whether the indices of the declared tensors stay inside of them: proved from the sizes of a call, or looked up.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;

use super::expr::host;
use super::{Layer, places};
use crate::graph::Op;
use crate::score::split::param_reads;
use crate::score::{Expr, Var};
use crate::spec::Size;

/// `fn check_indices((batch, query, key)) -> Result<(), p::Error<Dev>>`, if the body declares a tensor.
pub(super) fn emit(cx: &Layer<'_>) -> Option<TokenStream> {
    let functions = cx.graph.nodes.iter().filter_map(|node| match &node.op {
        Op::MapScores { expr, .. } => Some(expr),
        _ => None,
    });
    let reads: Vec<_> = functions.flat_map(param_reads).collect();
    let declared = cx.spec.body.params.iter();
    let checks = declared.flat_map(|param| {
        let name = param.name.to_string();
        let reads = reads.iter().filter(move |(read, _)| *read == name);
        reads
            .flat_map(move |(_, index)| index.iter().zip(&param.dims).enumerate())
            .map(|(axis, (index, size))| emit_check(cx, &param.name.to_string(), axis, size, index))
    });
    let checks: Vec<_> = checks.collect();
    (!checks.is_empty()).then(|| {
        quote_spanned! {cx.at=>
            /// Checks the indices of the declared tensors.
            #[allow(unused_variables)]
            fn check_indices<Dev>((batch, query, key): (usize, usize, usize)) -> Result<(), p::Error<Dev>> {
                #(#checks)*
                Ok(())
            }
        }
    })
}

fn emit_check(cx: &Layer<'_>, name: &str, axis: usize, size: &Size, index: &Expr) -> TokenStream {
    let (label, heads, axis) = (cx.label(), &cx.spec.heads, Literal::usize_unsuffixed(axis));
    let (bounds, value) = (places::ranges(index), host(index, 0));
    let places = [
        (Var::B, quote_spanned!(cx.at=> batch)),
        (Var::H, quote_spanned!(cx.at=> #heads)),
        (Var::QIdx, quote_spanned!(cx.at=> query)),
        (Var::KvIdx, quote_spanned!(cx.at=> key)),
    ];
    let places = places.map(|(var, len)| {
        if index.reads(var) {
            len
        } else {
            quote_spanned!(cx.at=> 1)
        }
    });
    quote_spanned! {cx.at=>
        let bounds = {
            let [b, h, q_idx, kv_idx] = [batch, #heads, query, key].map(|len| p::Interval::of(&(0..len)));
            let [q_len, kv_len] = [query, key].map(|len| p::Interval::exactly(len as i64));
            #bounds
        };
        let [q_len, kv_len] = [query as i64, key as i64];
        let axis = p::Axis { layer: #label, tensor: #name, axis: #axis, size: #size };
        axis.check(bounds, [#(#places),*], |b, h, q_idx, kv_idx| #value)?;
    }
}
