//! Facts of the layer that need no run: its sizes, its number of parameters, its cost, its mask.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, bounds, places};
use crate::graph::Dim;
use crate::graph::block::dim;
use crate::score::prove::without_data;
use crate::score::{Expr, Var};
use crate::spec::Size;

/// The constants and `flops`. They stand on the default type, so that `Name::PARAMS` needs no type arguments.
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let spec = cx.spec;
    let vis = &spec.item.vis;
    let (_, d_context) = spec.source_of_keys();
    let (_, d_values) = spec.source_of_values();
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
            "Width of the input that gives the keys, and the values if no other does.",
        ),
        (
            "D_VALUES",
            d_values,
            "Width of the input that gives the values.",
        ),
    ];
    let constants = constants.map(|(constant, size, doc)| {
        let constant = format_ident!("{constant}");
        quote!(#[doc = #doc] #vis const #constant: usize = #size;)
    });
    let params = params(cx);
    let flops = flops(cx);
    let mask = emit_mask(cx);
    let label = cx.label();
    let output = format!("[batch, q_len, {}]", spec.d_model);
    quote_spanned! {cx.at=>
        #mask

        #[allow(dead_code)]
        impl #name {
            #(#constants)*

            /// The number of parameters.
            #vis const PARAMS: usize = #params;

            /// The floating-point operations of the matrix products of one forward pass: two for a multiplication and an
            /// addition, including masked pairs. A backward pass takes twice as many. `u64::MAX` on overflow.
            #vis const fn flops(batch: usize, q_len: usize, kv_len: usize) -> u64 {
                #flops
            }
        }

        impl<E: p::Dtype, D: p::Storage<E>> p::Facts for #name<E, D> {
            type Sizes = [usize; 3];

            const PARAMS: usize = #params;
            const AXES: &'static [&'static str] = &["batch", "q_len", "kv_len"];

            fn flops([batch, q_len, kv_len]: [usize; 3]) -> u64 {
                <#name>::flops(batch, q_len, kv_len)
            }

            fn summary() -> p::String {
                let params = <Self as p::Facts>::PARAMS;
                let layer = p::Row { name: "", layer: #label, output: #output, params };
                p::summary(#label, &[layer], params)
            }
        }
    }
}

/// Properties of the mask, proved and counted.
fn emit_mask(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.spec.item.vis;
    let heads = &cx.spec.heads;
    let mask = mask(cx);
    let subject = cx.spec.subject(&mask);
    let is_causal = subject.is_causal();
    let every_query_attends = subject.every_query_attends();
    let different_heads = if mask.reads(Var::H) {
        quote!(#heads)
    } else {
        quote!(1)
    };
    let alone = without_data(&mask);
    let mask_alone = emit_mask_alone(cx, &mask, &alone);
    let check_mask = bounds::emit_of_mask(cx, &alone);
    let label = cx.label();
    let check_mask_data = check_mask
        .is_some()
        .then(|| quote!(check_mask(q_len, kv_len)?;));
    let check_grid = super::input::emit_grid_check(cx)
        .map(|check| quote!(let axes = (1, q_len, kv_len); #check));
    let check = quote! {
        p::check_mask_lengths(#label, q_len, kv_len)?;
        #check_grid
        #check_mask_data
    };
    quote! {
        #[allow(dead_code)]
        impl #name {
            /// Whether it is proved for all lengths and data that no query attends to a key after its own position. In
            /// cross-attention, positions are aligned at the first or at the last one.
            #vis const IS_CAUSAL: bool = #is_causal;

            /// Whether it is proved for all lengths and data that every query attends to at least one key, if there is a
            /// key.
            #vis const EVERY_QUERY_ATTENDS: bool = #every_query_attends;

            /// The fraction of pairs of a query and a key that attend, from 0 to 1, if the data of the call masks no pair: every
            /// key is valid, all tokens are of one document. 0 if there are no pairs.
            ///
            /// # Panics
            /// If [`try_mask_density`](Self::try_mask_density) returns an error.
            #[track_caller]
            #vis fn mask_density(q_len: usize, kv_len: usize) -> f64 {
                p::unwrap(Self::try_mask_density(q_len, kv_len))
            }

            /// [`mask_density`](Self::mask_density) with an error if the mask divides an integer by 0, if a length is greater
            /// than half a million, or if the lengths are not those of the grid.
            #vis fn try_mask_density(q_len: usize, kv_len: usize) -> Result<f64, p::Error<p::AutoErr>> {
                #check
                Ok(p::mask_density(&mask_alone(q_len, kv_len), #different_heads, q_len, kv_len))
            }

            /// The blocks of queries and keys that the kernels skip, mask and compute as a whole, for one sequence under the
            /// same assumption.
            ///
            /// # Panics
            /// If [`try_mask_blocks`](Self::try_mask_blocks) returns an error.
            #[track_caller]
            #vis fn mask_blocks(q_len: usize, kv_len: usize) -> p::MaskBlocks {
                p::unwrap(Self::try_mask_blocks(q_len, kv_len))
            }

            /// [`mask_blocks`](Self::mask_blocks) with an error if the mask divides an integer by 0, if a length is greater
            /// than half a million, or if the lengths are not those of the grid.
            #vis fn try_mask_blocks(q_len: usize, kv_len: usize) -> Result<p::MaskBlocks, p::Error<p::AutoErr>> {
                #check
                Ok(p::MaskBlocks::new(&mask_alone(q_len, kv_len), #different_heads, q_len, kv_len))
            }
        }

        #check_mask
        #mask_alone
    }
}

/// `fn mask_alone(q_len, kv_len) -> impl p::Mask`: the mask as if there were no data.
fn emit_mask_alone(cx: &Layer<'_>, mask: &Expr, alone: &Expr) -> TokenStream {
    let is_emitted = cx.fused.is_some() && cx.graph.data.iter().all(|data| !data.is_read(mask));
    let item = (!is_emitted).then(|| places::emit_mask(cx, alone));
    let value = if matches!(mask, Expr::Bool(true)) {
        quote!(p::Everything)
    } else {
        // The fields are those of the mask that the item was emitted for: without data, an operand that decides nothing is left out.
        let emitted = if is_emitted { mask } else { alone };
        let value = places::emit_mask_value(cx, emitted, &quote!(q_len), &quote!(kv_len));
        quote!(#item #value)
    };
    quote! {
        /// The mask without data.
        #[allow(dead_code, unused_variables)]
        fn mask_alone(q_len: usize, kv_len: usize) -> impl p::Mask {
            #value
        }
    }
}

/// The predicate of the mask; after a mistake, that of no mask.
fn mask(cx: &Layer<'_>) -> Expr {
    let mask = cx.graph.mask().filter(|_| !cx.spec.poisoned);
    mask.cloned().unwrap_or(Expr::Bool(true))
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
    let mut values = counts.iter().map(|count| count.value);
    match values.try_fold(0_u64, |sum, value| sum.checked_add(value?)) {
        Some(total) => {
            let total = Size::known(total);
            quote!(#total)
        }
        None => quote!(#((#counts))+*),
    }
}

/// Two flops for every number that a matrix product reads along its inner axis.
fn flops(cx: &Layer<'_>) -> TokenStream {
    let block = &cx.graph.block;
    let products = block.nodes().flat_map(|node| {
        let operands = node.operands.iter().map(|id| &block.value(*id).ty);
        let operands: Vec<_> = operands.collect();
        let result = block.value(node.result);
        let sequence_of_keys = !cx.graph.cross && matches!(&*result.name, "k" | "v");
        let products = node.op.products(&operands, &result.ty).into_iter();
        products.map(move |axes| {
            let factors = axes.iter().map(|axis| match dim(axis) {
                Dim::Batch => quote!(batch),
                Dim::Query if sequence_of_keys => quote!(kv_len),
                Dim::Query => quote!(q_len),
                Dim::Key => quote!(kv_len),
                Dim::Size(size) => quote!(#size),
            });
            quote!(p::product(&[2, #(#factors),*]))
        })
    });
    let products: Vec<_> = products.collect();
    quote!(p::total(&[#(#products),*]))
}
