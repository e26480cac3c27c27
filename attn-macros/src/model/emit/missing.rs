//! Errors for the items that only a model of known layers has: `PARAMS`, `flops`, `activation_bytes`, `summary_of` and `composed`.
//!
//! After a mistake they are there, so that uses compile. Of a model with a `module` they are bound by a trait that nothing
//! implements, which says why: where one is asked for.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, MODEL, length, trainer};
use crate::emit::on_unimplemented;
use crate::messages::model as messages;
use crate::model::graph::Opaque;

pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    match cx.model.opaques.first() {
        _ if cx.model.poisoned => emit_nothing(cx),
        Some(opaque) => emit_refusals(cx, opaque),
        None => TokenStream::new(),
    }
}

fn emit_nothing(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let sizes = sizes(cx);
    let bytes = trainer::emit_bytes(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code, missing_docs, unused_variables)]
        impl #name {
            #vis const PARAMS: usize = 0;

            #bytes

            #vis const fn flops(#sizes) -> u64 {
                0
            }

            #vis const fn activation_bytes(#sizes) -> usize {
                0
            }

            #vis fn summary() -> p::String {
                p::String::new()
            }

            #vis fn summary_of(#sizes) -> p::String {
                p::String::new()
            }

            #vis const fn graph_dot() -> &'static str {
                ""
            }

            #vis const fn graph_svg() -> &'static str {
                ""
            }
        }
    }
}

/// A bound of a method that is known to be broken is an error, unless it is of any lifetime.
fn emit_refusals(cx: &Emitter<'_>, opaque: &Opaque) -> TokenStream {
    let name = &cx.name;
    let vis = &cx.model.item.vis;
    let built = cx.built(MODEL);
    let sizes = sizes(cx);
    let reason = format_ident!("{}CallsNoModule", cx.model.item.name);
    let message = messages::no_facts(&cx.label());
    let label = messages::known_by_type(&opaque.text);
    let note = "`summary()` counts all parameters";
    let unimplemented = on_unimplemented(cx.at, &["Self"], &message, &label, &[note]);
    quote_spanned! {cx.at=>
        /// No layer of the model can have this name.
        mod __facts {
            #unimplemented
            pub trait #reason {}
        }

        #[allow(dead_code)]
        impl #name where for<'a> Self: __facts::#reason {
            #[doc(hidden)]
            #vis const PARAMS: usize = 0;
        }

        #[allow(dead_code, unused_variables)]
        impl #name {
            #[doc(hidden)]
            #vis const fn flops(#sizes) -> u64 where for<'a> Self: __facts::#reason {
                0
            }

            #[doc(hidden)]
            #vis const fn activation_bytes(#sizes) -> usize where for<'a> Self: __facts::#reason {
                0
            }

            #[doc(hidden)]
            #vis fn summary_of(#sizes) -> p::String where for<'a> Self: __facts::#reason {
                p::String::new()
            }
        }

        #[allow(dead_code)]
        impl<E: p::Dtype, D: p::Storage<E> #built> #name<E, D #built> {
            #[doc(hidden)]
            #vis fn composed(&self) -> p::Composed<'_, Self> where Self: __facts::#reason {
                p::Composed::new(self)
            }
        }
    }
}

/// `batch: usize, seq: usize`
fn sizes(cx: &Emitter<'_>) -> TokenStream {
    let symbols = cx.model.symbols.iter();
    let names = symbols.map(|name| length(cx.model, name));
    quote!(#(#names: usize),*)
}
