//! `session` and `sessions`, or why there are none.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, MODEL, docs};
use crate::messages::model as messages;
use crate::ops::Lookup;

/// A trait that nothing implements, which says why the model has no session: where one is asked for.
fn emit_trait(cx: &Emitter<'_>) -> TokenStream {
    let Err(reason) = &cx.session else {
        return TokenStream::new();
    };
    let name = trait_name(cx);
    let message = messages::no_session(&cx.label());
    let (label, note) = reason.split_once('\n').unwrap_or((reason, ""));
    let note = (!note.is_empty()).then(|| quote!(, note = #note));
    quote_spanned! {cx.at=>
        /// No layer of the model can have this name.
        mod __session {
            #[diagnostic::on_unimplemented(message = #message, label = #label #note)]
            pub trait #name {}
        }
    }
}

fn trait_name(cx: &Emitter<'_>) -> Ident {
    format_ident!("{}Session", cx.model.item.name)
}

/// The methods.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    let reason = trait_name(cx);
    match cx.session {
        // After a mistake, uses compile.
        _ if cx.model.poisoned => emit_none(cx, None),
        Ok(()) => emit_sessions(cx),
        Err(_) => [
            emit_trait(cx),
            emit_none(
                cx,
                Some(quote_spanned!(cx.at=> where Self: __session::#reason)),
            ),
        ]
        .into_iter()
        .collect(),
    }
}

fn emit_sessions(cx: &Emitter<'_>) -> TokenStream {
    let [session, sessions] = ["session", "sessions"].map(|name| cx.method(name));
    let [doc, doc_of_several] = docs::sessions(cx);
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let label = cx.label();
    let nodes = cx.model.nodes();
    let lookups = || nodes.iter().filter_map(|node| node.op.description().lookup);
    let vocabularies = lookups().filter_map(|lookup| match lookup {
        Lookup::ById { vocab, .. } => vocab,
        Lookup::ByPosition { .. } => None,
    });
    let positions = lookups().filter_map(|lookup| match lookup {
        Lookup::ByPosition { max_len, .. } => Some(max_len),
        Lookup::ById { .. } => None,
    });
    let result = cx.model.results.first().map(|id| cx.model.value(*id));
    let width = result.and_then(|result| result.ty.width());
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E>> #name<E, D> {
            #[doc = #doc]
            #vis fn #session(&self, capacity: usize) -> Result<p::Session<E>, p::Error<D::Err>> {
                Ok(p::Session::from(self.#sessions(1, capacity)?))
            }

            #[doc = #doc_of_several]
            #vis fn #sessions(&self, sequences: usize, capacity: usize) -> Result<p::Sessions<E>, p::Error<D::Err>> {
                #(p::check_length(capacity, #positions)?;)*
                p::check_sizes(#label, &[("sequences", sequences), ("capacity", capacity), ("width", #width)])?;
                let room = p::Capacity { sequences, capacity };
                let mut operation = p::Operation::<E, D, p::NoneTape>::default();
                let weights = p::Weighted::weights(self, &mut operation)?;
                let past = past(&weights, room)?;
                let model = p::ModelDecoder { weights: p::Arc::new(weights), past, decode: decode::<E> };
                p::Sessions::try_new(model, room, p::least(&[#(#vocabularies),*]), #width)
            }
        }
    }
}

/// Methods that return nothing: those of a model with mistakes, and those that nobody can call, where the trait says why.
fn emit_none(cx: &Emitter<'_>, condition: Option<TokenStream>) -> TokenStream {
    let [session, sessions] = ["session", "sessions"].map(|name| cx.method(name));
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let built = cx.built(MODEL);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Element, D: p::Backend<E> #built> #name<E, D #built> {
            #[doc(hidden)]
            #vis fn #session(&self, _capacity: usize) -> Result<p::Session<E>, p::Error<D::Err>> #condition {
                p::no_session()
            }

            #[doc(hidden)]
            #vis fn #sessions(
                &self,
                _sequences: usize,
                _capacity: usize,
            ) -> Result<p::Sessions<E>, p::Error<D::Err>> #condition {
                p::no_session()
            }
        }
    }
}
