//! Whether the indices of the declared tensors stay inside of them: proved from the sizes of a call and the ids that it passes, or
//! looked up.

use proc_macro2::{Literal, TokenStream};
use quote::quote_spanned;

use super::expr::host;
use super::input::{data_name, declared_name, read_type};
use super::{Layer, places};
use crate::graph::{CallData, Dim, Op};
use crate::score::{Data, Expr, Var};
use crate::spec::body::Tensor;

/// An element that a function of the body reads.
struct Read<'a> {
    tensor: &'a str,
    dims: Vec<Dim>,
    index: &'a [Expr],
}

/// `check_indices(axes, &data_distance)?;`, if there is an index to check.
pub(super) fn emit_call(cx: &Layer<'_>) -> Option<TokenStream> {
    let data = cx.graph.declared().map(|data| declared_name(&data.name));
    let call = quote_spanned!(cx.at=> check_indices::<E, _>(axes, #(&#data),*)?;);
    (!checks(cx).is_empty()).then_some(call)
}

/// `fn check_indices((batch, query, key), data) -> Result<(), p::Error<Dev>>`, if there is an index to check.
pub(super) fn emit(cx: &Layer<'_>) -> Option<TokenStream> {
    let checks = checks(cx);
    let data = cx.graph.data.iter();
    let data = data.filter(|data| matches!(data, CallData::Declared(_)));
    let data = data.map(|data| {
        let (name, ty) = (data_name(data), read_type(data));
        quote_spanned!(cx.at=> #name: &#ty)
    });
    (!checks.is_empty()).then(|| {
        quote_spanned! {cx.at=>
            /// Checks the indices of the declared tensors.
            #[allow(unused_variables)]
            fn check_indices<E: p::Element, Dev>(
                (batch, query, key): (usize, usize, usize),
                #(#data),*
            ) -> Result<(), p::Error<Dev>> {
                #(#checks)*
                Ok(())
            }
        }
    })
}

/// The lines for every index that is not known to stay inside.
fn checks(cx: &Layer<'_>) -> Vec<TokenStream> {
    let reads = reads(cx).into_iter();
    let checks = reads.flat_map(
        |Read {
             tensor,
             dims,
             index,
         }| {
            let axes = dims.into_iter().zip(index).enumerate();
            let open = axes.filter(|(_, (dim, index))| !stays_inside(cx, dim, index));
            open.map(move |(axis, (dim, index))| emit_check(cx, tensor, axis, &dim, index))
        },
    );
    checks.collect()
}

/// Every element that the body reads, once: what stands in an index before the element of that index.
fn reads<'a>(cx: &'a Layer<'_>) -> Vec<Read<'a>> {
    let expressions = cx.graph.nodes.iter().filter_map(|node| match &node.op {
        Op::MapScores { expr, .. } => Some(expr),
        Op::Normalize { mask, .. } => mask.as_ref(),
        _ => None,
    });
    let (mut reads, mut texts) = (Vec::new(), Vec::new());
    for expr in expressions {
        add_reads(cx, expr, &mut |text, read| {
            if !texts.contains(&text) {
                texts.push(text);
                reads.push(read);
            }
        });
    }
    reads
}

fn add_reads<'a>(cx: &'a Layer<'_>, expr: &'a Expr, add: &mut impl FnMut(String, Read<'a>)) {
    for child in expr.children() {
        add_reads(cx, child, add);
    }
    let read = match expr {
        Expr::Param { name, index } => {
            let mut params = cx.spec.body.params.iter();
            let param = params.find(|param| param.name == **name);
            param.map(|param| (name, Tensor::Param(param).dims(), index))
        }
        Expr::Data {
            data: Data::Declared { name, .. },
            index,
        } => {
            let declared = cx.graph.declared().find(|declared| declared.name == *name);
            declared.map(|declared| (name, declared.dims.clone(), index))
        }
        _ => None,
    };
    if let Some((tensor, dims, index)) = read {
        add(
            expr.to_string(),
            Read {
                tensor,
                dims,
                index,
            },
        );
    }
}

/// Whether `index` counts along this axis and no other.
fn stays_inside(cx: &Layer<'_>, dim: &Dim, index: &Expr) -> bool {
    let Expr::Var(var) = index else {
        return false;
    };
    match (var, dim) {
        (Var::B, Dim::Batch) | (Var::QIdx, Dim::Query) | (Var::KvIdx, Dim::Key) => true,
        (Var::QIdx, Dim::Key) | (Var::KvIdx, Dim::Query) => !cx.graph.cross,
        (Var::H, Dim::Size(size)) => size.same(&cx.spec.heads),
        _ => false,
    }
}

fn emit_check(cx: &Layer<'_>, name: &str, axis: usize, dim: &Dim, index: &Expr) -> TokenStream {
    let (label, heads, axis) = (cx.label(), &cx.spec.heads, Literal::usize_unsuffixed(axis));
    let (bounds, value) = (places::on_zone(index), host(index, 0));
    let size = match dim {
        Dim::Batch => quote_spanned!(cx.at=> batch),
        Dim::Query => quote_spanned!(cx.at=> query),
        Dim::Key => quote_spanned!(cx.at=> key),
        Dim::Size(size) => quote_spanned!(cx.at=> #size),
    };
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
            let at = &p::Zone::of(&(0..query), &(0..key));
            let [b, h] = [batch, #heads].map(|len| at.within(p::Interval::of(&(0..len))));
            let [q_idx, kv_idx] = [at.q_idx(), at.kv_idx()];
            let [q_len, kv_len] = [query, key].map(|len| at.number(len as i64));
            p::Affine::bounds(#bounds)
        };
        let [q_len, kv_len] = [query as i64, key as i64];
        let axis = p::Axis { layer: #label, tensor: #name, axis: #axis, size: #size };
        axis.check(bounds, [#(#places),*], |b, h, q_idx, kv_idx| #value)?;
    }
}
