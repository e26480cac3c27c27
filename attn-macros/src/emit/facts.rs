//! What is known of the layer without running it: its sizes, its number of parameters, its cost.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::Layer;
use crate::graph::{Dim, Op};
use crate::spec::Size;

/// The constants and `flops`. They stand on the default type, so that `Name::PARAMS` needs no type arguments.
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let spec = cx.spec;
    let vis = &spec.item.vis;
    let d_context = spec.d_context.as_ref().unwrap_or(&spec.d_model);
    let constants = [
        ("HEADS", &spec.heads, "Number of query heads."),
        ("KV_HEADS", &spec.kv_heads, "Number of key and value heads."),
        (
            "D_MODEL",
            &spec.d_model,
            "Width of the input and of the output, in total.",
        ),
        (
            "HEAD_DIM",
            &spec.head_dim,
            "Width of a query and of a key, per head.",
        ),
        (
            "VALUE_HEAD_DIM",
            &spec.value_head_dim,
            "Width of a value, per head.",
        ),
        (
            "D_CONTEXT",
            d_context,
            "Width of the input that gives keys and values.",
        ),
    ];
    let constants = constants.map(|(constant, size, doc)| {
        let constant = format_ident!("{constant}");
        quote!(#[doc = #doc] #vis const #constant: usize = #size;)
    });
    let params = params(cx);
    let flops = flops(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl #name {
            #(#constants)*

            /// Number of learned numbers.
            #vis const PARAMS: usize = #params;

            /// Floating-point operations of the matrix products of one forward pass, a multiplication and an addition
            /// counted as two. Masked pairs are counted; a backward pass takes twice as many. What does not fit is
            /// `u64::MAX`.
            #vis const fn flops(batch: usize, q_len: usize, kv_len: usize) -> u64 {
                #flops
            }
        }
    }
}

fn params(cx: &Layer<'_>) -> TokenStream {
    let tensors = cx
        .graph
        .params
        .iter()
        .flat_map(|param| param.tensors())
        .map(|(_, dims, _)| dims);
    let count = tensors.map(|dims| {
        dims.iter()
            .fold(Size::known(1), |count, dim| count.times(dim))
    });
    let counts: Vec<Size> = count.collect();
    match counts.iter().map(|count| count.value).sum::<Option<u64>>() {
        Some(total) => {
            let total = Size::known(total);
            quote!(#total)
        }
        None => quote!(#((#counts))+*),
    }
}

/// Two flops for every number that a matrix product reads along its inner axis.
fn flops(cx: &Layer<'_>) -> TokenStream {
    let graph = cx.graph;
    let products = graph.nodes.iter().filter_map(|node| {
        let inner = match &node.op {
            Op::Linear { x, .. } => graph.node(*x).shape.last(),
            Op::DotScores { q, .. }
            | Op::AdditiveScores { q, .. }
            | Op::PerHeadLinear { q, .. } => graph.node(*q).shape.last(),
            Op::Attend { weights, .. } => graph.node(*weights).shape.last(),
            _ => None,
        }?;
        let sequence_of_keys = !graph.cross && matches!(node.name, "k" | "v");
        let factors = node.shape.iter().chain([inner]).map(|dim| match dim {
            Dim::Batch => quote!(batch),
            Dim::Query if sequence_of_keys => quote!(kv_len),
            Dim::Query => quote!(q_len),
            Dim::Key => quote!(kv_len),
            Dim::Size(size) => quote!(#size),
        });
        Some(quote!(p::product(&[2, #(#factors),*])))
    });
    let products: Vec<_> = products.collect();
    quote!(p::total(&[#(#products),*]))
}
