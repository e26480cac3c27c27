//! `attention_maps`: what every attention of the model looks at.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::opaque::Access;
use super::{Emitter, MODEL, docs};
use crate::model::graph::{Region, Step};

/// The methods. They run the composed form, in which there are weights.
pub(super) fn emit_methods(cx: &Emitter<'_>) -> TokenStream {
    let vis = &cx.model.item.vis;
    let input = cx.input(Access::Shared);
    let built = cx.built(MODEL);
    let [maps, try_maps] = docs::maps(cx);
    quote_spanned! {cx.at=>
        #[doc = #maps]
        #[track_caller]
        #vis fn attention_maps<X: #input<E, D #built>>(&self, x: X) -> p::Vec<p::AttentionMap> {
            p::unwrap(self.try_attention_maps(x))
        }

        #[doc = #try_maps]
        #vis fn try_attention_maps<X: #input<E, D #built>>(&self, x: X) -> Result<p::Vec<p::AttentionMap>, p::Error<D::Err>> {
            p::attention_maps(|run| x.run(self, run), attentions)
        }
    }
}

/// `fn attentions`: what they are called, in the order in which the graph runs them.
pub(super) fn emit_attentions(cx: &Emitter<'_>) -> TokenStream {
    let body = match cx.model.poisoned {
        true => TokenStream::new(),
        false => emit_region(cx, &cx.model.body),
    };
    quote_spanned! {cx.at=>
        /// The attentions of the model, in the order of execution.
        #[allow(dead_code, unused_variables)]
        fn attentions(found: &mut p::Attentions) {
            #body
        }
    }
}

fn emit_region(cx: &Emitter<'_>, region: &Region) -> TokenStream {
    let lines = region.steps.iter().map(|step| match step {
        Step::Node(node) => match node.attention() {
            Some(attention) => {
                let field = cx.model.fields(&attention.place);
                let name = &cx.model.attentions[attention.index].spec.item.name;
                quote!(found.attention(#field, <#name>::mask_blocks);)
            }
            None => TokenStream::new(),
        },
        Step::Repeat(repeat) => {
            let field = cx.model.fields(&repeat.place);
            let count = &repeat.count;
            let body = emit_region(cx, &repeat.body);
            match body.is_empty() {
                true => body,
                false => quote!(found.repeat(#field, #count, |found| { #body });),
            }
        }
    });
    lines.collect()
}
