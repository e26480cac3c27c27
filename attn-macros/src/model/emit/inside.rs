//! `attention_maps`, `values` and `first_non_finite`: a look inside of the model.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::opaque::Access;
use super::{Emitter, MODEL, docs};
use crate::model::graph::{Node, Region, Step};
use crate::model::types::ValueKind;
use crate::ops::Label;

/// The methods. They run the model as a chain of operations.
pub(super) fn emit_methods(cx: &Emitter<'_>) -> TokenStream {
    let vis = &cx.model.item.vis;
    let input = cx.input(Access::Shared);
    let built = cx.built(MODEL);
    let [maps, try_maps, value, try_value, finite, try_finite] = docs::inside(cx);
    let [attention_maps, values, first_non_finite] =
        ["attention_maps", "values", "first_non_finite"].map(|name| cx.method(name));
    let [try_attention_maps, try_values, try_first_non_finite] =
        ["try_attention_maps", "try_values", "try_first_non_finite"].map(|name| cx.method(name));
    quote_spanned! {cx.at=>
        #[doc = #maps]
        #[track_caller]
        #vis fn #attention_maps<X: #input<E, D #built>>(&self, x: X) -> p::Vec<p::AttentionMap> {
            p::unwrap(self.#try_attention_maps(x))
        }

        #[doc = #try_maps]
        #vis fn #try_attention_maps<X: #input<E, D #built>>(&self, x: X) -> Result<p::Vec<p::AttentionMap>, p::Error<D::Err>> {
            p::attention_maps(|run| x.run(self, run), outline)
        }

        #[doc = #value]
        #[track_caller]
        #vis fn #values<X: #input<E, D #built>>(&self, x: X) -> p::Values {
            p::unwrap(self.#try_values(x))
        }

        #[doc = #try_value]
        #vis fn #try_values<X: #input<E, D #built>>(&self, x: X) -> Result<p::Values, p::Error<D::Err>> {
            p::record_values(|run| x.run(self, run), outline)
        }

        #[doc = #finite]
        #[track_caller]
        #vis fn #first_non_finite<X: #input<E, D #built>, L: p::Backpropagate<Err = D::Err>>(
            &self,
            x: X,
            loss: impl FnOnce(X::Output) -> L,
        ) -> Option<p::NonFinite> {
            p::unwrap(self.#try_first_non_finite(x, loss))
        }

        #[doc = #try_finite]
        #vis fn #try_first_non_finite<X: #input<E, D #built>, L: p::Backpropagate<Err = D::Err>>(
            &self,
            x: X,
            loss: impl FnOnce(X::Output) -> L,
        ) -> Result<Option<p::NonFinite>, p::Error<D::Err>> {
            p::first_non_finite(|run| x.run(self, run), loss, outline)
        }
    }
}

/// `fn outline`: the names of results and attentions, in the order in which the graph runs them.
pub(super) fn emit_outline(cx: &Emitter<'_>) -> TokenStream {
    let body = match cx.model.poisoned {
        true => TokenStream::new(),
        false => emit_region(cx, &cx.model.body),
    };
    quote_spanned! {cx.at=>
        /// The operations of the model, in the order of execution.
        #[allow(dead_code, unused_variables)]
        fn outline(of: &mut p::Outline) {
            #body
        }
    }
}

fn emit_region(cx: &Emitter<'_>, region: &Region) -> TokenStream {
    let runs = region.steps.chunk_by(|a, b| {
        let is_node = |step: &Step| matches!(step, Step::Node(_));
        is_node(a) && is_node(b)
    });
    let lines = runs.map(|run| match run {
        [Step::Repeat(repeat)] => {
            let field = cx.model.fields(&repeat.place);
            let count = &repeat.count;
            let body = emit_region(cx, &repeat.body);
            quote!(of.repeat(#field, #count, |of| { #body });)
        }
        [Step::Scan(scan)] => {
            let yields = scan.yields.iter().map(|of| {
                let value = &cx.model.value(of.whole).source;
                quote!((#value, "scan"))
            });
            let mut nodes = scan.body.nodes().into_iter();
            let attends = nodes.any(|node| node.attention().is_some());
            let steps = attends.then(|| {
                let body = emit_region(cx, &scan.body);
                quote!(of.steps(|of| { #body });)
            });
            quote!(of.results(&[#(#yields),*]); #steps)
        }
        nodes => {
            let nodes = nodes.iter().filter_map(|step| match step {
                Step::Node(node) => Some(node),
                Step::Repeat(_) | Step::Scan(_) => None,
            });
            emit_nodes(cx, &nodes.collect::<Vec<_>>())
        }
    });
    lines.collect()
}

fn emit_nodes(cx: &Emitter<'_>, nodes: &[&Node]) -> TokenStream {
    let model = cx.model;
    let results = nodes
        .iter()
        .flat_map(|node| node.results().map(move |id| (node, model.value(id))));
    let of_floats = results.filter(|(_, value)| value.ty.kind == ValueKind::Floats);
    let results = of_floats.map(|(node, value)| {
        let value = &value.source;
        let operation = match node.op.description().label {
            Label::Layer(place) => model.fields(place),
            Label::Text(text) => text,
        };
        quote!((#value, #operation))
    });
    let attentions = nodes.iter().filter_map(|node| {
        let attention = node.attention()?;
        let field = model.fields(&attention.place);
        let name = &model.attentions[attention.index].spec.item.name;
        Some(quote!(of.attention(#field, <#name>::mask_blocks);))
    });
    quote! {
        of.results(&[#(#results),*]);
        #(#attentions)*
    }
}
